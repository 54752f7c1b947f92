"""CREATE of the result of any ALTERs makes the same as they did, ids and order excepted; what stays keeps its id.

The model below knows by itself what each ALTER does to the description of a table, and writes that description as
CREATE TABLE. Names of elements are drawn from few, so that they come back.
"""

import itertools
import random
from dataclasses import dataclass, field

import pytest

from f1server.catalog.compile import compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import Schema
from tests.unit.catalog.samples import ids

PARENTS = "CREATE TABLE p (k INT64 PRIMARY KEY); CREATE TABLE q (k INT64 PRIMARY KEY);"
COLUMNS = ["a", "b", "c", "d", "e"]
TABLES = ["t", "u", "v"]
TYPES = ["INT64", "VARCHAR(5)", "DECIMAL(5, 2)"]
WIDER = {
    "VARCHAR(5)": "VARCHAR(7)",
    "VARCHAR(7)": "STRING",
    "DECIMAL(5, 2)": "DECIMAL(8, 2)",
}
DEFAULTS = {"INT64": "1", "STRING": "'x'", "VARCHAR(5)": "'x'", "VARCHAR(7)": "'x'"}


@dataclass(eq=False)
class Column:
    """A column of the model; its identity is what its id must follow."""

    name: str
    type: str
    not_null: bool = False
    default: str = ""
    untracked: bool = False

    def sql(self):
        words = [self.name, self.type, "NOT NULL" if self.not_null else ""]
        words += [f"DEFAULT {self.default}" if self.default else "", "NOT TRACKED" if self.untracked else ""]
        return " ".join(word for word in words if word)


@dataclass(eq=False)
class Element:
    """A check, foreign key, lock, unique constraint or index over columns."""

    kind: str
    name: str
    columns: list
    storing: list = field(default_factory=list)
    target: str = ""

    def uses(self, column):
        return column in self.columns or column in self.storing


class Model:
    """One table below p, and all ALTERs that are possible."""

    def __init__(self, random):
        self.random = random
        self.name = "t"
        self.key = Column("k", "INT64", not_null=True)
        self.columns = [Column("a", "INT64")]
        self.elements = []
        self.cascade = self.untracked = False
        self.fresh = itertools.count()

    # What there is.

    def flag(self):
        return self.random.random() < 0.5

    def of(self, *kinds):
        return [element for element in self.elements if element.kind in kinds]

    def free(self, names, taken):
        return [name for name in names if name not in taken]

    def reachable(self, key):
        return any(e.columns[: len(key.columns)] == key.columns for e in self.of("unique", "index"))

    def add_fkey_index(self, key):
        wanted = "_".join([self.name, *(c.name for c in key.columns), "fkey_idx"])
        taken = {e.name for e in self.of("unique", "index")}
        name = next(n for n in itertools.chain([wanted], (f"{wanted}{i}" for i in range(1, 99))) if n not in taken)
        self.elements.append(Element("index", name, list(key.columns)))

    # The description as CREATE.

    def create(self):
        lines = [self.key.sql(), *(c.sql() for c in self.columns), "PRIMARY KEY (k)"]
        for e in self.of("check", "foreign key", "unique", "lock"):
            lines.append(self.constraint(e))
        table = f"CREATE TABLE {self.name} ({', '.join(lines)}) INTERLEAVE IN PARENT p"
        table += " ON DELETE CASCADE" if self.cascade else ""
        table += " WITH (change_history = false)" if self.untracked else ""
        indexes = []
        for e in self.of("index"):
            stored = f" STORING ({names(e.storing)})" if e.storing else ""
            indexes.append(f"CREATE INDEX {e.name} ON {self.name} ({names(e.columns)}){stored}")
        return "; ".join([PARENTS + table, *indexes])

    def constraint(self, e):
        over = names(e.columns)
        match e.kind:
            case "check":
                return (
                    f"CONSTRAINT {e.name} CHECK ({self.name}.{e.columns[0].name} IS NULL OR {e.columns[-1].name} > 'a')"
                )
            case "foreign key":
                return f"CONSTRAINT {e.name} FOREIGN KEY ({over}) REFERENCES {e.target}"
            case "unique":
                return f"CONSTRAINT {e.name} UNIQUE ({over})"
            case _:
                return f"LOCK {e.name} ({over})"

    # The ALTERs: each changes the model and returns its text.

    def step(self):
        possible = [
            self.add_column,
            self.alter_column,
            self.add_element,
            self.rename_column,
            self.rename_table,
            self.set_options,
            self.create_index,
        ]
        possible += [self.drop_column] if len(self.columns) > 1 else []
        possible += [self.drop_element] if self.of("check", "foreign key", "unique", "lock") else []
        possible += [self.rename_index] if self.of("unique", "index") else []
        return self.random.choice(possible)()

    def alter(self, action):
        return f"ALTER TABLE {self.name} {action}"

    def add_column(self):
        free = self.free(COLUMNS, {c.name for c in self.columns})
        if not free:
            return self.rename_table()
        kind = self.random.choice(TYPES)
        column = Column(self.random.choice(free), kind, self.flag(), untracked=self.flag())
        column.default = DEFAULTS.get(kind, "") if self.flag() else ""
        self.columns.append(column)
        return self.alter(f"ADD COLUMN {column.sql()}")

    def alter_column(self):
        column = self.random.choice(self.columns)
        what = self.random.choice(["type", "null", "default", "tracked"])
        if what == "type":
            column.type = WIDER.get(column.type, column.type)
            return self.alter(f"ALTER COLUMN {column.name} TYPE {column.type}")
        if what == "null":
            column.not_null = not column.not_null
            return self.alter(f"ALTER {column.name} {'SET' if column.not_null else 'DROP'} NOT NULL")
        if what == "tracked":
            column.untracked = not column.untracked
            return self.alter(f"ALTER {column.name} SET {'NOT ' if column.untracked else ''}TRACKED")
        column.default = "" if column.default else DEFAULTS.get(column.type, "NULL")
        return self.alter(
            f"ALTER {column.name} " + (f"SET DEFAULT {column.default}" if column.default else "DROP DEFAULT")
        )

    def some_columns(self, columns):
        return self.random.sample(columns, self.random.randint(1, min(2, len(columns))))

    def add_element(self):
        kind = self.random.choice(["check", "foreign key", "unique", "lock"])
        columns = self.columns
        if kind == "foreign key":
            columns = [c for c in columns if c.type == "INT64"]
        if kind == "lock":
            columns = [c for c in columns if not any(lock.uses(c) for lock in self.of("lock"))]
        if not columns:
            return self.add_column()
        element = Element(kind, f"{kind[0]}{next(self.fresh)}", self.some_columns(columns))
        if kind == "foreign key":
            element.columns, element.target = element.columns[:1], self.random.choice(["p", "q"])
        self.elements.append(element)
        text = self.alter(f"ADD {self.constraint(element)}")
        if kind == "foreign key" and not self.reachable(element):
            self.add_fkey_index(element)
        return text

    def create_index(self):
        columns = self.some_columns(self.columns)
        storing = [c for c in self.columns if c not in columns and self.flag()]
        element = Element("index", f"i{next(self.fresh)}", columns, storing)
        self.elements.append(element)
        stored = f" STORING ({names(storing)})" if storing else ""
        return f"CREATE INDEX {element.name} ON {self.name} ({names(columns)}){stored}"

    def drop_element(self):
        element = self.random.choice(self.of("check", "foreign key", "unique", "lock"))
        self.elements.remove(element)
        if element.kind == "unique":
            # CASCADE drops the foreign keys that have no other index.
            for key in self.of("foreign key"):
                if not self.reachable(key):
                    self.elements.remove(key)
        return self.alter(f"DROP CONSTRAINT {element.name} CASCADE")

    def drop_column(self):
        column = self.random.choice(self.columns)
        used = any(element.uses(column) for element in self.elements)
        self.columns.remove(column)
        self.elements = [element for element in self.elements if not element.uses(column)]
        for key in self.of("foreign key"):
            if not self.reachable(key):
                self.add_fkey_index(key)
        return self.alter(f"DROP COLUMN {column.name}{' CASCADE' if used else ''}")

    def rename_column(self):
        column = self.random.choice(self.columns)
        old, free = column.name, self.free(COLUMNS, {c.name for c in self.columns})
        column.name = self.random.choice([*free, old])
        return self.alter(f"RENAME COLUMN {old} TO {column.name}")

    def rename_table(self):
        old, self.name = self.name, self.random.choice(TABLES)
        return f"ALTER TABLE {old} RENAME TO {self.name}"

    def rename_index(self):
        index = self.random.choice(self.of("unique", "index"))
        old, index.name = index.name, f"i{next(self.fresh)}"
        return f"ALTER INDEX {old} RENAME TO {index.name}"

    def set_options(self):
        if self.flag():
            self.cascade = not self.cascade
            return self.alter(f"SET ON DELETE {'CASCADE' if self.cascade else 'NO ACTION'}")
        self.untracked = not self.untracked
        return self.alter(f"SET (change_history = {'false' if self.untracked else 'true'})")


def names(columns):
    return ", ".join(column.name for column in columns)


def described(schema):
    """The tables without ids and order; names in rewritten checks are quoted."""
    return {table.name: described_table(schema, table) for table in schema.tables}


def described_table(schema, table):
    def of(column_ids):
        return tuple(table.by_id[i].name for i in column_ids)

    return {
        "columns": {c.name: (c.type, c.not_null, c.default_sql, c.state, c.hidden, c.untracked) for c in table.columns},
        "table": (of(table.key_column_ids), table.cascade, table.untracked, table.state),
        "parent": schema.by_id[table.parent_id].name if table.parent_id else "",
        "indexes": {
            i.name: ([(of([p.column_id]), p.path) for p in i.parts], i.unique, i.local, set(of(i.storing)), i.state)
            for i in table.indexes
        },
        "foreign keys": {
            k.name: (of(k.column_ids), schema.by_id[k.referenced_table_id].name, k.state) for k in table.foreign_keys
        },
        "checks": {c.name: (c.sql.replace('"', ""), c.state) for c in table.checks},
        "locks": {lock.name: (of(lock.column_ids), lock.state) for lock in table.locks},
    }


def ids_of(model, schema):
    """The id of each thing of the model."""
    table = schema.table(model.name)
    found = {model: table.id}
    found.update({column: table.column(column.name).id for column in [model.key, *model.columns]})
    by_name = {x.name: x.id for x in (*table.indexes, *table.foreign_keys, *table.checks, *table.locks)}
    found.update({element: by_name[element.name] for element in model.elements})
    return found


@pytest.mark.parametrize("seed", range(24))
def test_alter_and_create_make_the_same(seed):
    model, new_id = Model(random.Random(seed)), ids()
    schema = compile_statements(Schema("d"), parse_ddl(model.create()), new_id)
    known = ids_of(model, schema)
    for _ in range(40):
        sql = model.step()
        schema = compile_statements(schema, parse_ddl(sql), new_id)
        created = compile_statements(Schema("d"), parse_ddl(model.create()), ids())
        assert described(schema) == described(created), sql
        now = ids_of(model, schema)
        assert all(known.get(thing, found) == found for thing, found in now.items()), sql
        known |= now
        assert len(set(known.values())) == len(known), sql
