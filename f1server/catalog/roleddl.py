"""The grammar of roles: PostgreSQL's CREATE, ALTER and DROP ROLE, GRANT and REVOKE.

Errors never show a string of a statement about roles: it may be a password.
"""

from f1common.errors import Code, F1Error
from f1server.catalog.cursor import Cursor
from f1server.catalog.lexer import Lexeme
from f1server.catalog.position import Position
from f1server.catalog.roles import ALL, NO_PRIVILEGE, Privilege
from f1server.catalog.rolestatements import (
    AlterRole,
    CreateRole,
    DropRole,
    GrantCreate,
    GrantOnTables,
    GrantRoles,
    RoleOptions,
    RoleStatement,
)

__all__ = ["RoleParser"]

_A_ROLE = "the name of a role"
_FLAGS = {
    "LOGIN": ("login", True),
    "NOLOGIN": ("login", False),
    "SUPERUSER": ("superuser", True),
    "NOSUPERUSER": ("superuser", False),
}


class RoleParser(Cursor):
    """Reads the statements about roles."""

    def role_statement(self) -> RoleStatement | None:
        """Read a statement about roles if there is one here."""
        for word in ("ROLE", "USER"):
            if self.accept("CREATE", word):
                return self._create_role(login=word == "USER")
            if self.accept("ALTER", word):
                return self._alter_role()
            if self.accept("DROP", word):
                if_exists = self.if_exists()
                at = self.here()
                return DropRole(self._roles(), if_exists, at)
        if self.accept("GRANT"):
            return self._grant(revoke=False)
        if self.accept("REVOKE"):
            return self._grant(revoke=True)
        return None

    def _create_role(self, *, login: bool) -> CreateRole:
        exists_ok = self.if_not_exists()
        at = self.here()
        name = self.name(_A_ROLE)
        options = self._options(RoleOptions(login=True if login else None))
        return CreateRole(name, options, exists_ok, at)

    def _alter_role(self) -> AlterRole:
        at = self.here()
        name = self.name(_A_ROLE)
        if self.accept("RENAME"):
            self.expect("TO", "and the new name")
            return AlterRole(name, to=self.name("the new name"), at=at)
        options = self._options(RoleOptions())
        if options == RoleOptions():
            raise self._no_option()
        return AlterRole(name, options, at=at)

    def _options(self, options: RoleOptions) -> RoleOptions:
        login, superuser, password = options.login, options.superuser, options.password
        self.accept("WITH")
        while not self.at_end() and not self.sees(";"):
            word = self.peek().text.upper() if self.peek().kind is Lexeme.WORD else ""
            if word in _FLAGS:
                self.take()
                name, value = _FLAGS[word]
                login, superuser = (value, superuser) if name == "login" else (login, value)
            elif self.accept("ENCRYPTED", "PASSWORD") or self.accept("PASSWORD"):
                password = self._password()
            else:
                raise self._no_option()
        return RoleOptions(login, superuser, password)

    def _password(self) -> str:
        if self.accept("NULL"):
            return ""
        if self.peek().kind is not Lexeme.STRING or not self.peek().text:
            raise self.bare_wrong("expected a string in single quotes, or NULL, after PASSWORD")
        return self.take().text

    def _no_option(self) -> F1Error:
        expected = "expected LOGIN, NOLOGIN, SUPERUSER, NOSUPERUSER or PASSWORD"
        return self.bare_wrong(expected)

    # ------------------------------------------------------------------ GRANT, REVOKE

    def _grant(self, *, revoke: bool) -> RoleStatement:
        at = self.here()
        if self.sees("GRANT", "OPTION") or self.sees("ADMIN", "OPTION"):
            raise self.wrong("there are no grant options: a role with CREATE ON SCHEMA may grant")
        words = [self._granted()]
        while self.accept(","):
            words.append(self._granted())
        if not self.accept("ON"):
            names = tuple(name for name, _ in words)
            return GrantRoles(names, self._to_roles(revoke), revoke, at)
        if self.accept("SCHEMA"):
            self.accept("PUBLIC")
            if [name.upper() for name, _ in words] != ["CREATE"]:
                raise at.error(Code.INVALID_ARGUMENT, "the right on a schema is CREATE: GRANT CREATE ON SCHEMA TO ...")
            return GrantCreate(self._to_roles(revoke), revoke, at)
        privileges = NO_PRIVILEGE
        for name, quoted in words:
            privileges |= _privilege(name, quoted, at)
        tables = self._tables()
        return GrantOnTables(privileges, tables, self._to_roles(revoke), revoke, at)

    def _granted(self) -> tuple[str, bool]:
        """Read a privilege or the name of a role: what follows tells which."""
        quoted = self.peek().kind is Lexeme.QUOTED
        name = self.name("SELECT, INSERT, UPDATE, DELETE, ALL, CREATE or the name of a role")
        if not quoted and name.upper() == "ALL":
            self.accept("PRIVILEGES")
        if self.sees("("):
            raise self.wrong("privileges are on whole tables, not on columns")
        return name, quoted

    def _tables(self) -> tuple[str, ...]:
        if self.accept("ALL", "TABLES"):
            if self.accept("IN"):
                self.expect("SCHEMA", "after IN")
                self.expect("PUBLIC", "which is the schema's name")
            return ()
        self.accept("TABLE")
        names = [self.relation("the name of a table")]
        while self.accept(","):
            names.append(self.relation("the name of a table"))
        return tuple(names)

    def _to_roles(self, revoke: bool) -> tuple[str, ...]:
        self.expect("FROM" if revoke else "TO", "and the name of a role")
        if self.sees("PUBLIC"):
            raise self.wrong("there is no role of everybody: grant to roles, and a role to roles")
        roles = self._roles()
        if self.sees("WITH"):
            raise self.wrong("there are no grant options: a role with CREATE ON SCHEMA may grant")
        if revoke and (self.sees("CASCADE") or self.sees("RESTRICT")):
            self.take()
        return roles

    def _roles(self) -> tuple[str, ...]:
        names = [self.name(_A_ROLE)]
        while self.accept(","):
            names.append(self.name(_A_ROLE))
        return tuple(names)


def _privilege(name: str, quoted: bool, at: Position) -> Privilege:
    if not quoted and name.upper() == "ALL":
        return ALL
    found = None if quoted else Privilege.__members__.get(name.upper())
    if found is None:
        raise at.error(
            Code.INVALID_ARGUMENT, f"{name} is no privilege on tables: SELECT, INSERT, UPDATE, DELETE and ALL are"
        )
    return found
