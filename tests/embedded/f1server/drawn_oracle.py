"""DuckDB over the same rows as the tables of :mod:`tests.embedded.f1server.drawn_statements`."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb

from tests.embedded.f1server.drawn_statements import DUCK_DDL, KEYS, Drawing, Drawn

ROWS = {"A": 8, "K": 60, "M": 45}


class Oracle:
    """The same rows in DuckDB."""

    def __init__(self) -> None:
        self.duck = duckdb.connect()
        self.duck.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        for statement in DUCK_DDL:
            self.duck.execute(statement)

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self.duck.execute(sql, params).fetchall()

    def insert(self, table: str, row: dict[str, object]) -> None:
        marks = ", ".join("?" for _ in row)
        self.duck.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def filled(self, drawing: Drawing) -> dict[str, list[dict[str, object]]]:
        """Insert drawn rows, none without its parent, and return them by table."""
        found: dict[str, list[dict[str, object]]] = {}
        for table, count in ROWS.items():
            drawn = [drawing.row(table) for _ in range(count)]
            rows = {tuple(row[name] for name in KEYS[table]): row for row in drawn}
            roots = {id_ for (id_,) in self.rows("SELECT Id FROM A")}
            found[table] = [row for row in rows.values() if table != "K" or row["Id"] in roots]
            for row in found[table]:
                self.insert(table, row)
        return found

    def change(self, drawn: Drawn) -> tuple[int, list[tuple[Any, ...]]]:
        """Execute what is drawn, and delete the children of what it deletes.

        Returns how many rows it names, and what it returns of them.
        """
        rows = self.rows(drawn.sql, drawn.params)
        self.duck.execute("DELETE FROM K WHERE Id NOT IN (SELECT Id FROM A)")
        return (len(rows), rows) if "RETURNING" in drawn.sql else (int(rows[0][0]), [])


def plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """Values as both sides give them: of numbers that a DOUBLE can hold only the value counts."""
    return tuple(float(v) if _is_plain_number(v) else v for v in row)


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, Decimal) or (type(value) is int and abs(value) < 1 << 53)


def wrong_with(drawn: Drawn, found: Sequence[Any], oracle: Oracle) -> str:
    """Say what is wrong with the rows found, or nothing."""
    expected = [plain(row) for row in oracle.rows(drawn.sql, drawn.params)]
    rows = [plain(row) for row in found]
    if len(rows) != len(expected):
        return f"{len(rows)} rows instead of {len(expected)}: {rows[:5]} instead of {expected[:5]}"
    if drawn.order and [[row[i] for i in drawn.order] for row in rows] != [
        [r[i] for i in drawn.order] for r in expected
    ]:
        return f"another order: {rows[:8]} instead of {expected[:8]}"
    allowed = Counter(expected)
    if drawn.limited:
        allowed = Counter(plain(row) for row in oracle.rows(drawn.all_rows, drawn.all_params))
    if strange := Counter(rows) - allowed:
        return f"rows that it must not give: {list(strange)[:5]}"
    return ""
