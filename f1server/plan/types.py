"""What type an expression has, as far as that decides how it is written for DuckDB.

Unknown is always a possible answer: an expression of unknown type goes to DuckDB as it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from f1common.encoding.proto import ProtoRegistry
from f1common.errors import F1Error
from f1server.catalog.protos import field_type
from f1server.catalog.schema import Column, ColumnType, Kind
from f1server.catalog.types import column_type
from f1server.plan.dialect import function_name, proto_name

META = "f1_type"
"""Key of ``Expression.meta`` under which name resolution leaves the type of a column."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type; ``kind`` None is unknown. ``lists``: so many levels of list around it.

    ``proto`` names the message, ``scale`` is that of a NUMERIC, ``literal`` marks constants that take the type of what
    they are compared with.
    """

    kind: Kind | None = None
    scale: int = 9
    precision: int = 38
    proto: str = ""
    lists: int = 0
    literal: bool = False

    def __deepcopy__(self, memo: object) -> "SqlType":
        """A value: copies of trees, which carry types, share it."""
        return self

    @property
    def name(self) -> str:
        """The type as results show it."""
        inner = f"PROTO<{self.proto}>" if self.kind is Kind.PROTO else str(self.kind.value if self.kind else "")
        return "ARRAY<" * self.lists + inner + ">" * self.lists


UNKNOWN = SqlType()
BOOL = SqlType(Kind.BOOL)
INT = SqlType(Kind.INT64)
DOUBLE = SqlType(Kind.DOUBLE)
STRING = SqlType(Kind.STRING)
BYTES = SqlType(Kind.BYTES)
DATE = SqlType(Kind.DATE)
TIMESTAMP = SqlType(Kind.TIMESTAMP)

_PREDICATES = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean, exp.Between, exp.In, exp.Exists)
_SAME_AS_ARGUMENT = (
    exp.Paren,
    exp.Neg,
    exp.Min,
    exp.Max,
    exp.Filter,
    exp.Window,
    exp.Coalesce,
    exp.Nullif,
    exp.Greatest,
)
_INT_FUNCTIONS = frozenset(
    {*("length", "char_length", "character_length", "octet_length", "strpos", "ascii", "date_part", "bit_length")}
    | {*("row_number", "rank", "dense_rank", "ntile", "cardinality", "array_length", "len", "year", "month", "day")}
)
_STRING_FUNCTIONS = frozenset(
    {*("lower", "upper", "substr", "substring", "left", "right", "lpad", "rpad", "trim", "btrim", "ltrim", "rtrim")}
    | {*("concat", "concat_ws", "replace", "repeat", "reverse", "initcap", "md5", "to_char", "split_part", "translate")}
)
_DOUBLE_FUNCTIONS = frozenset(
    {
        *(
            "sqrt",
            "power",
            "pow",
            "exp",
            "ln",
            "log",
            "log10",
            "log2",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "atan2",
        )
    }
    | {*("random", "pi", "degrees", "radians", "stddev", "variance", "stddev_samp", "stddev_pop", "var_samp", "cbrt")}
)


def of_column(column: Column) -> SqlType:
    """Return the type of a table's column."""
    return of_column_type(column.type)


def of_column_type(declared: ColumnType) -> SqlType:
    """Return the type that a declaration gives."""
    if declared.kind is Kind.NUMERIC and declared.precision:
        return SqlType(Kind.NUMERIC, declared.scale, declared.precision)
    return SqlType(declared.kind, proto=declared.proto)


def of_path(registry: ProtoRegistry, message: str, path: tuple[str, ...], lists: int = 0) -> SqlType:
    """Return the type of a path into a message. Raises NOT_FOUND, INVALID_ARGUMENT as :func:`field_type`."""
    found = field_type(registry, message, path)
    levels = lists + repeated_levels(registry, message, path)
    if found.kind is None:
        return SqlType(Kind.PROTO, proto=found.message, lists=levels)
    return SqlType(found.kind, scale=0 if found.kind is Kind.NUMERIC else 9, precision=20, lists=levels)


def repeated_levels(registry: ProtoRegistry, message: str, path: tuple[str, ...]) -> int:
    """Return how many fields along a path are repeated."""
    at: Any = registry.message_class(message).DESCRIPTOR
    levels = 0
    for name in path:
        field = at.fields_by_name[name]
        levels += bool(field.is_repeated)
        at = field.message_type
    return levels


def of_data_type(kind: exp.Expr | None) -> SqlType:
    """Return the type that a CAST names; unknown for those of DuckDB that no column has."""
    if not isinstance(kind, exp.DataType):
        return UNKNOWN
    if message := proto_name(kind):
        return SqlType(Kind.PROTO, proto=message)
    if kind.this in (exp.DType.ARRAY, exp.DType.LIST) and kind.expressions:
        inner = of_data_type(kind.expressions[0])
        return replace(inner, lists=inner.lists + 1)
    known = KINDS.get(kind.this)
    if known is None and kind.this is exp.DType.USERDEFINED:
        try:
            return of_column_type(column_type(type_text(kind)))
        except F1Error:
            return UNKNOWN
    if known is Kind.NUMERIC and kind.expressions:
        numbers = [int(p.name) for p in kind.expressions if p.name.isdecimal()]
        return SqlType(Kind.NUMERIC, numbers[1] if len(numbers) > 1 else 0, numbers[0] if numbers else 38)
    return SqlType(known)


def type_text(kind: exp.DataType) -> str:
    """Return the name of a type that sqlglot does not know."""
    found = kind.args.get("kind")
    return found.name if isinstance(found, exp.Expr) else str(found or "")


KINDS: dict[exp.DType, Kind] = {
    exp.DType.BOOLEAN: Kind.BOOL,
    **dict.fromkeys(
        (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.MEDIUMINT, exp.DType.INT, exp.DType.BIGINT), Kind.INT64
    ),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE), Kind.DOUBLE),
    **dict.fromkeys((exp.DType.DECIMAL, exp.DType.BIGDECIMAL, exp.DType.MONEY), Kind.NUMERIC),
    **dict.fromkeys(
        (exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR), Kind.STRING
    ),
    **dict.fromkeys((exp.DType.BPCHAR, exp.DType.NAME), Kind.STRING),
    **dict.fromkeys((exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB), Kind.BYTES),
    exp.DType.DATE: Kind.DATE,
    **dict.fromkeys(
        (
            exp.DType.TIMESTAMP,
            exp.DType.TIMESTAMPTZ,
            exp.DType.TIMESTAMPLTZ,
            exp.DType.TIMESTAMPNTZ,
            exp.DType.DATETIME,
        ),
        Kind.TIMESTAMP,
    ),
}


def infer(node: exp.Expr) -> SqlType:
    """Return the type of an expression whose names are resolved."""
    known = node.meta.get(META) if node.meta else None
    if isinstance(known, SqlType):
        return known
    found = _infer(node)
    node.meta[META] = found
    return found


def infer_all(root: exp.Expr) -> None:
    """Infer the types of all parts of an expression, the innermost first: long sums are deep trees."""
    for node in reversed(list(root.walk())):
        infer(node)


def _infer(node: exp.Expr) -> SqlType:
    if isinstance(node, exp.Literal):
        return _literal(node)
    if isinstance(node, exp.Cast):
        return of_data_type(node.args.get("to"))
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod):
        return _arithmetic(node, infer(node.this), infer(node.expression))
    if isinstance(node, exp.Div):
        both = {infer(node.this).kind, infer(node.expression).kind}
        return INT if both == {Kind.INT64} else DOUBLE if None not in both else UNKNOWN
    if isinstance(node, exp.Count | exp.RowNumber | exp.Extract | exp.StrPosition):
        return INT
    if isinstance(node, exp.Avg | exp.Pow):
        return DOUBLE
    if isinstance(node, exp.Sum):
        return _sum(infer(node.this))
    if isinstance(node, _PREDICATES):
        return BOOL
    if isinstance(node, exp.DPipe):
        return BYTES if Kind.BYTES in (infer(node.this).kind, infer(node.expression).kind) else STRING
    if isinstance(node, exp.Substring | exp.Trim | exp.GroupConcat):
        return STRING
    if isinstance(node, exp.CurrentTimestamp):
        return TIMESTAMP
    if isinstance(node, exp.CurrentDate):
        return DATE
    return _composed(node)


def _composed(node: exp.Expr) -> SqlType:
    if isinstance(node, exp.Alias | exp.Distinct | exp.Ordered):
        inner = node.expressions[0] if isinstance(node, exp.Distinct) and node.expressions else node.this
        return infer(inner) if isinstance(inner, exp.Expr) else UNKNOWN
    if isinstance(node, exp.Case):
        results = [when.args["true"] for when in node.args.get("ifs") or ()]
        return common(infer(r) for r in [*results, node.args.get("default")] if isinstance(r, exp.Expr))
    if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
        return common(infer(part) for part in [node.this, *node.expressions])
    if isinstance(node, exp.Subquery | exp.Select):
        inner = node.unnest()
        return infer(inner.selects[0]) if isinstance(inner, exp.Select) and len(inner.selects) == 1 else UNKNOWN
    if isinstance(node, _SAME_AS_ARGUMENT) and isinstance(node.this, exp.Expr):
        return infer(node.this)
    if isinstance(node, exp.Bracket):
        inner = infer(node.this)
        return replace(inner, lists=inner.lists - 1) if inner.lists else UNKNOWN
    return _function(node)


def _function(node: exp.Expr) -> SqlType:
    name = function_name(node)
    if name in _INT_FUNCTIONS:
        return INT
    if name in _STRING_FUNCTIONS:
        return STRING
    if name in _DOUBLE_FUNCTIONS:
        return DOUBLE
    if name in ("abs", "any_value", "first", "last", "mod", "ifnull") and node.expressions:
        return infer(node.expressions[0])
    return UNKNOWN


def common(types: Iterable[SqlType]) -> SqlType:
    """Return the type that values of all these types have together."""
    found = [t for t in types if t.kind is not None and not (t.literal and t.kind is Kind.STRING)]
    if not found:
        return UNKNOWN
    kinds = {t.kind for t in found}
    if len({(t.kind, t.scale, t.precision, t.proto, t.lists) for t in found}) == 1:
        return replace(found[0], literal=False)
    if kinds <= {Kind.INT64, Kind.NUMERIC} and not any(t.lists for t in found):
        return SqlType(Kind.NUMERIC, max(t.scale for t in found if t.kind is Kind.NUMERIC))
    if kinds <= {Kind.INT64, Kind.NUMERIC, Kind.DOUBLE} and not any(t.lists for t in found):
        return DOUBLE
    return UNKNOWN


def _literal(node: exp.Literal) -> SqlType:
    if node.is_string:
        return replace(STRING, literal=True)
    text = str(node.this).lower()
    if text.isdecimal():
        return replace(INT, literal=True)
    if "e" in text:
        return replace(DOUBLE, literal=True)
    digits = text.replace(".", "").lstrip("0")
    return SqlType(Kind.NUMERIC, len(text.partition(".")[2]), max(1, len(digits)), literal=True)


def _arithmetic(node: exp.Expr, left: SqlType, right: SqlType) -> SqlType:
    kinds = {left.kind, right.kind}
    if left.lists or right.lists:
        return UNKNOWN
    if kinds == {Kind.INT64}:
        return replace(INT, literal=left.literal and right.literal)
    if kinds <= {Kind.INT64, Kind.NUMERIC}:
        scales = [t.scale for t in (left, right) if t.kind is Kind.NUMERIC]
        scale = sum(scales) if isinstance(node, exp.Mul) else max(scales)
        return SqlType(Kind.NUMERIC, min(scale, 9) if isinstance(node, exp.Mul) else scale)
    if kinds <= {Kind.INT64, Kind.NUMERIC, Kind.DOUBLE}:
        return DOUBLE
    if left.kind is Kind.DATE and right.kind is Kind.INT64:
        return DATE
    if kinds == {Kind.DATE} and isinstance(node, exp.Sub):
        return INT
    return UNKNOWN


def _sum(inner: SqlType) -> SqlType:
    match inner.kind:
        case Kind.INT64:
            return SqlType(Kind.NUMERIC, 0)
        case Kind.NUMERIC:
            return SqlType(Kind.NUMERIC, inner.scale)
        case Kind.DOUBLE:
            return DOUBLE
        case _:
            return UNKNOWN
