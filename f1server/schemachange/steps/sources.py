"""The schema that sources describe, .sql and .proto files of a whole database, beside the one that is there."""

from collections.abc import Sequence

from f1common.errors import Code
from f1server.catalog import ddl
from f1server.catalog.adopt import adopt_ids
from f1server.catalog.alterroles import with_roles_of, with_stated_roles
from f1server.catalog.compile import compile_sources
from f1server.catalog.ids import NewId
from f1server.catalog.renames import renamed, without_renames
from f1server.catalog.rolestatements import RoleStatement
from f1server.catalog.schema import Schema
from f1server.catalog.statements import CreateDatabase, DropDatabase, SchemaStatement
from f1server.schemachange.steps.moves import mirrored

__all__ = ["FIRST_DRAFT_ID", "Sources"]

FIRST_DRAFT_ID = 1 << 30
"""Elements of a schema that is only a draft have ids from here on, which no stored element has."""


class Sources:
    """Sources that could be parsed."""

    def __init__(self, sql_files: Sequence[tuple[str, str]], proto_files: Sequence[tuple[str, str]]) -> None:
        """Take (name, text) of the files. Raises F1Error INVALID_ARGUMENT with the place in the source."""
        self._statements = _statements(sql_files)
        self._proto_files = proto_files
        self.state_roles = any(isinstance(s, RoleStatement) for s in self._statements)
        """Do the sources say what roles and grants there are? Otherwise these stay as they are."""

    def wanted(self, schema: Schema, new_id: NewId) -> Schema:
        """Return what ``schema`` is to become, with ids of its own for what is the same.

        Raises F1Error as :func:`f1server.catalog.compile.compile_sources` and
        :func:`f1server.catalog.renames.renamed`.
        """
        statements = without_renames(self._statements)
        compiled = compile_sources(schema.database, statements, self._proto_files, _Draft())
        wanted = adopt_ids(renamed(schema, self._statements, compiled), compiled, new_id)
        return with_stated_roles(schema, wanted, new_id) if self.state_roles else with_roles_of(schema, wanted)

    def draft(self, schema: Schema) -> Schema:
        """Return the same, with ids that are not drawn: the same ones each time for one schema. Raises the same."""
        ids = _Draft(FIRST_DRAFT_ID)
        return mirrored(schema, self.wanted(schema, ids), ids)


class _Draft:
    """Ids for a schema that is not stored."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def __call__(self) -> int:
        self._next += 1
        return self._next - 1


def _statements(sql_files: Sequence[tuple[str, str]]) -> list[SchemaStatement]:
    statements: list[SchemaStatement] = []
    for name, text in sql_files:
        for statement in ddl.parse_ddl(text, name):
            if isinstance(statement, CreateDatabase | DropDatabase):
                raise statement.at.error(Code.INVALID_ARGUMENT, "sources describe one database, which is named apart")
            statements.append(statement)
    return statements
