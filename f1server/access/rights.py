"""What a role may do under one version of the schema.

Rights are those of the version that a piece of work is done under. A commit is checked under the version whose lease is
its deadline, so that a right counts exactly as long as the version that grants it may be committed under.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from f1common.errors import Code, F1Error
from f1server.catalog.roles import NO_PRIVILEGE, Privilege, names_of, with_roles_above
from f1server.catalog.rolestatements import AlterRole, CreateRole, DropRole, GrantCreate, GrantOnTables, GrantRoles
from f1server.catalog.schema import Schema, Table
from f1server.catalog.statements import CreateDatabase, DdlStatement, DropDatabase
from f1server.history.table import PREFIX
from f1server.rows.layout import HISTORY_ID

__all__ = ["EVERYBODY", "UNLIMITED", "Caller", "Rights", "rights_of"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a role of the database that is asked, by id. 0: nobody has to say, everybody may do everything."""

    role_id: int
    name: str


EVERYBODY = Caller(0, "f1")
"""The superuser that everybody is while authentication is none; also a superuser of the default database elsewhere."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one role. ``unlimited``: a superuser's, or everybody's while nobody logs in."""

    name: str
    role_id: int = 0
    unlimited: bool = True
    create: bool = True
    tables: dict[int, Privilege] = field(default_factory=dict)

    def may(self, table_id: int, privileges: Privilege) -> bool:
        """May the role do all of this with a table? Of the table of a change history: with the table that it is of."""
        number = table_id - HISTORY_ID if table_id >= HISTORY_ID else table_id
        # As numbers: flags take microseconds, which each statement would pay.
        return self.unlimited or not int(privileges) & ~int(self.tables.get(number, 0))

    def sees(self, table_id: int) -> bool:
        """May the role read rows of a table? Not of one that is no more."""
        return self.may(table_id, Privilege.SELECT)

    def touches(self, table_id: int) -> bool:
        """May the role do anything with a table?"""
        return self.unlimited or bool(self.tables.get(table_id, NO_PRIVILEGE))

    def require(self, table: Table, privileges: Privilege) -> None:
        """Raise PERMISSION_DENIED, with what is missing, unless the role may do all of this with ``table``."""
        if self.may(table.id, privileges):
            return
        missing = privileges & ~self.tables.get(table.id, NO_PRIVILEGE) if table.id < HISTORY_ID else privileges
        words = ", ".join(names_of(missing))
        name = table.name if table.id < HISTORY_ID else table.name.removeprefix(PREFIX)
        raise F1Error(
            Code.PERMISSION_DENIED,
            f"the role {self.name} lacks {words} on {table.name}; GRANT {words} ON TABLE {name} TO {self.name}",
            details={"role": self.name, "privilege": words, "table": table.name},
        )

    def require_create(self, what: str) -> None:
        """Raise PERMISSION_DENIED unless the role may change the schema."""
        if not (self.unlimited or self.create):
            raise F1Error(
                Code.PERMISSION_DENIED,
                f"{what} needs CREATE on the schema; GRANT CREATE ON SCHEMA TO {self.name}",
                details={"role": self.name, "privilege": "CREATE"},
            )

    def require_superuser(self, what: str) -> None:
        """Raise PERMISSION_DENIED unless the role is a superuser."""
        if not self.unlimited:
            raise F1Error(
                Code.PERMISSION_DENIED,
                f"{what} is for superusers, which the role {self.name} is not",
                details={"role": self.name, "privilege": "SUPERUSER"},
            )

    @property
    def creator(self) -> int:
        """The role that gets all privileges on tables that it creates; 0: superusers need none."""
        return 0 if self.unlimited else self.role_id

    def require_sources(self, state_roles: bool) -> None:
        """Raise PERMISSION_DENIED unless the role may apply schema sources, and such that state roles."""
        self.require_create("to apply schema sources")
        if state_roles:
            self.require_superuser("a source that states roles")

    def require_ddl(self, statements: Iterable[DdlStatement]) -> None:
        """Raise PERMISSION_DENIED unless the role may run all of these in its database.

        Raises FAILED_PRECONDITION if it would drop itself.
        """
        for statement in statements:
            match statement:
                case DropRole(names) if self.role_id and self.name.lower() in {name.lower() for name in names}:
                    raise F1Error(Code.FAILED_PRECONDITION, f"{self.name} cannot drop itself; log in as another role")
                case _ if self.unlimited:
                    pass
                case CreateDatabase() | DropDatabase():
                    self.require_superuser("a statement about databases")
                case AlterRole(name, options, "") if name.lower() == self.name.lower() and options.only_password:
                    pass
                case CreateRole() | AlterRole() | DropRole() | GrantRoles() | GrantCreate():
                    self.require_superuser("a statement about roles")
                case GrantOnTables():
                    self.require_create("a change of grants")
                case _:
                    self.require_create("a change of the schema")


UNLIMITED = Rights("f1")


def rights_of(schema: Schema, caller: Caller) -> Rights:
    """Return what a caller may do under a schema. Raises UNAUTHENTICATED for a role that it does not have."""
    if not caller.role_id:
        return UNLIMITED
    kept: dict[int, Rights] | None = vars(schema).get("_rights")
    if kept is None:
        kept = vars(schema)["_rights"] = {}
    found = kept.get(caller.role_id)
    if found is None:
        found = kept[caller.role_id] = _rights(schema, caller)
    return found


def _rights(schema: Schema, caller: Caller) -> Rights:
    role = schema.roles_by_id.get(caller.role_id)
    if role is None:
        raise F1Error(Code.UNAUTHENTICATED, f"the role {caller.name} was dropped; connect as another one")
    above = with_roles_above(schema.roles, role.id)
    tables: dict[int, Privilege] = {}
    for table in schema.tables:
        for grant in table.grants:
            if grant.role_id in above:
                tables[table.id] = tables.get(table.id, NO_PRIVILEGE) | grant.privileges
    create = any(other.create for other in schema.roles if other.id in above)
    return Rights(role.name, role.id, role.superuser, create or role.superuser, tables)
