"""Definition 5 by trying: every representation of a bounded size, every operation on it, under either schema."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from f1server.schemachange.model.consistency import Clause, is_consistent, violations
from f1server.schemachange.model.operations import Kind, Operation, apply
from f1server.schemachange.model.representation import EXISTS, Cell, Entry, Key, Representation
from f1server.schemachange.model.schema import Schema, Structure, Table

__all__ = ["Anomaly", "Bounds", "anomalies", "operations", "representations"]

_Pair = tuple[Key, int | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a database gets: the primary keys and the values that there are."""

    pks: Sequence[int] = (0, 1)
    values: Sequence[int] = (0, 1)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An operation of a server on one schema that breaks a clause with respect to one of the two."""

    kind: Kind
    by_new: bool
    """Whether the server uses the second of the two schemas."""
    against_new: bool
    clause: Clause

    def __str__(self) -> str:
        """Say it as the proofs do."""
        by, against = ("S2" if new else "S1" for new in (self.by_new, self.against_new))
        return f"{self.kind.value} under {by} violates clause {self.clause.value} with respect to {against}"


def anomalies(first: Schema, second: Schema, bounds: Bounds) -> set[Anomaly]:
    """Return how a change from ``first`` to ``second`` fails to preserve consistency (definition 5).

    Every operation under either schema is applied to every representation within ``bounds`` that is consistent with
    respect to both; nothing returned means that the change is consistency preserving within the bounds.
    """
    schemas = (first, second)
    found: set[Anomaly] = set()
    tried = list(operations(first.structure, bounds))
    for d in representations(first.structure, bounds):
        if not all(is_consistent(d, schema) for schema in schemas):
            continue
        for operation, by_new in product(tried, (False, True)):
            after = apply(d, schemas[by_new], operation)
            if after is None:
                continue
            for against_new in (False, True):
                for violation in violations(after, schemas[against_new]):
                    found.add(Anomaly(operation.kind, by_new, against_new, violation.clause))
    return found


def representations(structure: Structure, bounds: Bounds) -> Iterator[Representation]:
    """Yield every set of pairs that can be made of the structure's names within the bounds, orphans included."""
    parts: list[list[tuple[_Pair, ...]]] = []
    for table in structure.tables:
        parts += [_cells(Cell(table.name, pk, EXISTS), (None,)) for pk in bounds.pks]
        parts += [
            _cells(Cell(table.name, pk, column.name), bounds.values) for pk in bounds.pks for column in table.columns
        ]
        parts += [_cells(entry, (None,)) for entry in _entries(table, bounds)]
    for chosen in product(*parts):
        yield {key: value for pairs in chosen for key, value in pairs}


def _cells(key: Key, values: Sequence[int | None]) -> list[tuple[_Pair, ...]]:
    return [(), *(((key, value),) for value in values)]


def _entries(table: Table, bounds: Bounds) -> Iterator[Entry]:
    for index in table.indexes:
        for values in product(bounds.values, repeat=len(index.columns)):
            for pk in bounds.pks:
                yield Entry(table.name, index.name, values, pk)


def operations(structure: Structure, bounds: Bounds) -> Iterator[Operation]:
    """Yield every operation on the structure's tables within the bounds, with every subset of columns assigned."""
    for table, pk in product(structure.tables, bounds.pks):
        yield Operation(Kind.DELETE, table.name, pk)
        for count in range(len(table.columns) + 1):
            for names in combinations([column.name for column in table.columns], count):
                for values in product((None, *bounds.values), repeat=count):
                    given = tuple(zip(names, values, strict=True))
                    yield Operation(Kind.UPDATE, table.name, pk, given)
                    if None not in values:
                        yield Operation(Kind.INSERT, table.name, pk, given)
