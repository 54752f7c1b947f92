"""What the schema compiler checks of SQL in DDL: conditions of CHECK, defaults, and what views depend on.

DuckDB evaluates them later, bound by the SQL tier; here names are resolved and what could give another answer on
another day or server is refused.
"""

from collections.abc import Container, Iterable, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from f1common.errors import Code, F1Error
from f1server.catalog.lexer import Lexeme, tokenize
from f1server.catalog.schema import Kind

_CLOCK = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime, exp.CurrentUser)
_CHANGING = frozenset(
    {
        *("now", "current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "timeofday"),
        *("clock_timestamp", "statement_timestamp", "transaction_timestamp", "get_current_timestamp"),
        *("today", "get_current_time", "pg_sleep", "random", "rand", "setseed"),
        *("uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval", "txid_current"),
        *("current_user", "session_user", "current_database", "current_schema", "current_setting", "getenv"),
        *("version", "current_version"),
    }
)


def column_references(sql: str, what: str) -> list[tuple[str, ...]]:
    """Parse a CHECK condition and return its references: a column, a path into one, or a table before either.

    Raises F1Error INVALID_ARGUMENT if it is no expression, or contains a query, an aggregate, a window, a parameter or
    a function whose value changes.
    """
    expression = _parse(sql, what)
    _refuse_context(expression, what)
    for node in expression.walk():
        name = _function_name(node)
        if isinstance(node, _CLOCK) or name in _CHANGING:
            shown = name or node.sql(dialect="postgres")
            raise F1Error(Code.INVALID_ARGUMENT, f"{what} uses {shown}, whose value changes: only immutable functions")
    return sorted({_parts(column) for column in expression.find_all(exp.Column)})


def column_part(reference: Sequence[str], table: str, columns: Container[str]) -> int:
    """Which part of a reference of a check names the column: 1 after the table's name, 0 otherwise.

    ``columns`` are the table's, in lower case; where a column has the name of the table, it is the column.
    """
    first = reference[0].lower()
    return int(len(reference) > 1 and first == table.lower() and first not in columns)


def check_default(sql: str, kind: Kind, what: str) -> None:
    """Check a DEFAULT: no columns, queries or aggregates, and a constant of the column's kind if it is a constant.

    Clock functions, random numbers and uuids are allowed: a default is evaluated once for each statement.
    Raises F1Error INVALID_ARGUMENT.
    """
    expression = _parse(sql, what)
    _refuse_context(expression, what)
    column = expression.find(exp.Column)
    if column is not None and column.sql().lower() not in _CHANGING:
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} refers to the column {column.sql()}: defaults are constants")
    if not _constant_fits(expression, kind):
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} is no {kind.value}: {sql}")


def relations_used(sql: str) -> set[str]:
    """Return, in lower case, the names of tables and views that a query reads; too many if it cannot be parsed here."""
    try:
        query = sqlglot.parse_one(sql, dialect="postgres")
        return {table.name.lower() for table in query.find_all(exp.Table)}
    except SqlglotError:
        return {t.text.lower() for t in tokenize(sql) if t.kind in (Lexeme.WORD, Lexeme.QUOTED)}


def _parts(column: exp.Column) -> tuple[str, ...]:
    return tuple(part.name for part in column.parts)


def _parse(sql: str, what: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(f"SELECT ({sql})", dialect="postgres").expressions[0]  # type: ignore[no-any-return]
    except (SqlglotError, IndexError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else "it cannot be parsed"
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} is no expression: {first}") from None


def _refuse_context(expression: exp.Expr, what: str) -> None:
    unfit: Iterable[tuple[type[exp.Expr], str]] = (
        (exp.Query, "a query"),
        (exp.AggFunc, "an aggregate"),
        (exp.Window, "a window"),
        (exp.Placeholder, "a parameter"),
        (exp.Parameter, "a parameter"),
        (exp.Star, "*"),
    )
    for kind, name in unfit:
        if expression.find(kind) is not None:
            raise F1Error(Code.INVALID_ARGUMENT, f"{what} contains {name}, which is not possible there")


def _function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


_NUMBERS = frozenset({Kind.INT64, Kind.DOUBLE, Kind.NUMERIC})


def _constant_fits(expression: exp.Expr, kind: Kind) -> bool:
    """Does a literal fit its column? Whatever is no plain literal is left to the evaluator."""
    node = expression.unnest()
    if isinstance(node, exp.Neg):
        node = node.this.unnest()
    if isinstance(node, exp.Boolean):
        return kind is Kind.BOOL
    if not isinstance(node, exp.Literal):
        return True
    text = str(node.this)
    if node.is_string:
        return not (kind in _NUMBERS and not _is_number(text))
    return kind in _NUMBERS and (kind is not Kind.INT64 or text.isdecimal())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
