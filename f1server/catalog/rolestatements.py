"""What DDL about roles says, before names are looked up: the output of :mod:`f1server.catalog.roleddl`."""

from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from f1common.scram import is_verifier, make_verifier
from f1server.catalog.position import NOWHERE, Position
from f1server.catalog.roles import ALL, Privilege, names_of

__all__ = [
    "AlterRole",
    "CreateRole",
    "DropRole",
    "GrantCreate",
    "GrantOnTables",
    "GrantRoles",
    "RoleOptions",
    "SALT_BYTES",
    "holds_password",
    "with_verifier",
]


T = TypeVar("T")

SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """Options of CREATE ROLE and ALTER ROLE; None: not mentioned.

    ``password``: a verifier, or a password as a user typed it, which must not be stored; empty: PASSWORD NULL.
    """

    login: bool | None = None
    superuser: bool | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def names_password(self) -> bool:
        """Is there a password, rather than a verifier?"""
        return bool(self.password) and not is_verifier(self.password or "")

    @property
    def only_password(self) -> bool:
        """Is nothing but the password mentioned?"""
        return self.login is None and self.superuser is None and self.password is not None


@dataclass(frozen=True, slots=True)
class CreateRole:
    """CREATE ROLE."""

    name: str
    options: RoleOptions = RoleOptions()
    if_not_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AlterRole:
    """ALTER ROLE; ``to``: RENAME TO."""

    name: str
    options: RoleOptions = RoleOptions()
    to: str = ""
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropRole:
    """DROP ROLE."""

    names: tuple[str, ...]
    if_exists: bool = False
    at: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class GrantOnTables:
    """GRANT or REVOKE ... ON TABLE; no ``tables``: ALL TABLES, those that are there."""

    privileges: Privilege
    tables: tuple[str, ...]
    roles: tuple[str, ...]
    revoke: bool = False
    at: Position = field(default=NOWHERE, compare=False)

    def title(self) -> str:
        """Return what a list of changes calls it."""
        what = "ALL" if self.privileges == ALL else ", ".join(names_of(self.privileges))
        return _title(f"{what} ON {', '.join(self.tables) or 'ALL TABLES'}", self.roles, self.revoke)


@dataclass(frozen=True, slots=True)
class GrantCreate:
    """GRANT or REVOKE CREATE ON SCHEMA."""

    roles: tuple[str, ...]
    revoke: bool = False
    at: Position = field(default=NOWHERE, compare=False)

    def title(self) -> str:
        """Return what a list of changes calls it."""
        return _title("CREATE ON SCHEMA", self.roles, self.revoke)


@dataclass(frozen=True, slots=True)
class GrantRoles:
    """GRANT role TO role, or REVOKE ... FROM."""

    granted: tuple[str, ...]
    roles: tuple[str, ...]
    revoke: bool = False
    at: Position = field(default=NOWHERE, compare=False)

    def title(self) -> str:
        """Return what a list of changes calls it."""
        return _title(", ".join(self.granted), self.roles, self.revoke)


RoleStatement = CreateRole | AlterRole | DropRole | GrantOnTables | GrantCreate | GrantRoles


def holds_password(statement: object) -> bool:
    """Does a statement hold a password, so that neither it nor its text is kept?"""
    return isinstance(statement, CreateRole | AlterRole) and statement.options.names_password


def with_verifier(statement: T, salt: bytes) -> T:
    """Return a statement with the verifier of the password that it holds, if it holds one. It takes some ms."""
    if isinstance(statement, CreateRole | AlterRole) and statement.options.names_password:
        verifier = make_verifier(statement.options.password or "", salt).text()
        hashed = replace(statement, options=replace(statement.options, password=verifier))
        return cast(T, hashed)
    return statement


def _title(what: str, roles: tuple[str, ...], revoke: bool) -> str:
    return f"{'REVOKE' if revoke else 'GRANT'} {what} {'FROM' if revoke else 'TO'} {', '.join(roles)}"
