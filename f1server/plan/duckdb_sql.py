"""Writes a resolved query for DuckDB, with PostgreSQL's meaning. ``docs/sql.md`` lists every rewrite.

What depends on one execution (parameters, the time) is left open: :class:`Template`.
"""

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from f1common.encoding.values import INT64_MAX, NUMERIC_SCALE, Date, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ColumnType, Kind
from f1server.plan.dialect import function_name
from f1server.plan.functions import REFUSED, RENAMED, time_format
from f1server.plan.types import BYTES, INT, META, SqlType, infer, of_data_type, type_text
from f1server.rows.coerce import coerce

_MARK = re.compile("\x01([^\x02]*)\x02")
_NOW = "now"
_NAME = str.maketrans({":": "_", ".": "_"})
PROTO_META = "f1_proto"
"""Key of ``Expression.meta`` of a parameter that is cast to a message type, or compared with BYTES."""
BYTES_GAP = ":bytes"
"""In the place of the message type in the latter case."""
_DUCK_TYPES = {
    Kind.BOOL: "BOOLEAN",
    Kind.INT64: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "TEXT",
    Kind.BYTES: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.PROTO: "BLOB",
}
_PASSED_TYPES = frozenset(
    {exp.DType.TIME, exp.DType.INTERVAL, exp.DType.UUID, exp.DType.JSON, exp.DType.JSONB, exp.DType.STRUCT}
)
_OF_ONE_TYPE = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between),
    *(exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.DPipe, exp.Case),
)
"""Whose operands are of one type: a text takes that of the others."""
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)

Parameter = object
"""A parameter's value: one of :data:`f1server.rows.values.Value`, or a date, datetime, int, list of the standard
library."""


@dataclass(frozen=True, slots=True)
class Template:
    """SQL with gaps. ``pieces`` are texts and, at odd places, the names of gaps: ``now``, or a parameter's number from
    1."""

    pieces: tuple[str, ...]

    def fill(
        self, params: Sequence[Parameter], now_us: int, message: Callable[[str, object], object]
    ) -> tuple[str, dict[str, object]]:
        """Return SQL, and values to bind by name. ``message`` turns a parameter into the bytes of a message type.

        Raises F1Error INVALID_ARGUMENT for a parameter that is not given.
        """
        text: list[str] = []
        bound: dict[str, object] = {}
        for index, piece in enumerate(self.pieces):
            if index % 2 == 0:
                text.append(piece)
            elif piece == _NOW:
                text.append(_literal(Timestamp(now_us)) or "NULL")
            else:
                digits, _, kind = piece.partition(":")
                number = int(digits)
                if number > len(params):
                    raise missing_parameter(number, len(params))
                value = message(kind, params[number - 1]) if kind else params[number - 1]
                literal = _literal(value)
                if literal is None:
                    name = "p" + piece.translate(_NAME)
                    literal = f"${name}"
                    bound[name] = value
                text.append(literal)
        return "".join(text), bound


def missing_parameter(number: int, given: int) -> F1Error:
    """Return the error for a parameter that is not there."""
    return F1Error(Code.INVALID_ARGUMENT, f"the statement has a parameter {number}, but {given} were given")


def _literal(value: object) -> str | None:
    """Write a value as a literal; None: it is bound instead."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            if -INT64_MAX <= value <= INT64_MAX:
                return f"CAST({value} AS BIGINT)"
            return f"CAST('{value}' AS BIGINT)" if value == -INT64_MAX - 1 else f"CAST({value} AS HUGEINT)"
        case Decimal() if value.is_finite():
            exponent = value.as_tuple().exponent
            scale = max(0, -exponent) if isinstance(exponent, int) else 0
            if scale > NUMERIC_SCALE or (value and value.adjusted() > 28):
                raise F1Error(Code.OUT_OF_RANGE, f"{value:.40g} is out of range of NUMERIC")
            return f"CAST('{value:f}' AS DECIMAL(38,{scale}))"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str() if len(value) <= 4096 and "\x00" not in value:
            # As a literal it takes the type of what it is compared with, as PostgreSQL's unknown does.
            return "'" + value.replace("'", "''") + "'"
        case Date():
            return f"CAST('{value.to_date().isoformat()}' AS DATE)"
        case Timestamp():
            return f"make_timestamptz(CAST({value.us} AS BIGINT))"
        case datetime.datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            return _literal(Timestamp.of(moment))
        case datetime.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case _:
            return None


def template(query: exp.Expr) -> Template:
    """Rewrite a resolved query in place and return its SQL. Raises F1Error INVALID_ARGUMENT."""
    rewrite(query)
    return gaps(sql_of(query))


def gaps(sql: str) -> Template:
    """Return the SQL of a rewritten tree, or of a part of one, as a template."""
    return Template(tuple(_MARK.split(sql)))


def sql_of(node: exp.Expr) -> str:
    """Return the SQL of a rewritten tree."""
    try:
        return str(node.sql("duckdb", identify=True, unsupported_level=ErrorLevel.IGNORE))
    except (RecursionError, ValueError, AttributeError) as error:
        raise F1Error(Code.INVALID_ARGUMENT, "the statement is nested too deeply") from error


def rewrite(query: exp.Expr) -> None:
    """Rewrite all of a resolved tree, the innermost expressions first."""
    nodes = list(query.walk(bfs=True))
    for node in reversed(nodes):
        if isinstance(node, (exp.Literal, exp.Column, exp.Cast, *_ARITHMETIC)):
            infer(node)  # kept at the node: what surrounds it still sees the type when it has been rewritten
    for node in nodes:
        if isinstance(node, _OF_ONE_TYPE):
            for sides in _sides(node):
                _with_bytes(sides)
    for node in reversed(nodes):
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            handler(node)


def _sides(node: exp.Expr) -> list[list[exp.Expr]]:
    """Return the operands of a node that are of one type: of CASE, what is compared and what is the result."""
    sides = [side for key in ("this", "expression", "low", "high") if (side := node.args.get(key)) is not None]
    if not isinstance(node, exp.Case):
        return [[*sides, *node.expressions]]
    branches, default = node.args["ifs"], node.args.get("default")
    results = [branch.args["true"] for branch in branches] + ([] if default is None else [default])
    return [[*sides, *(branch.this for branch in branches)] if sides else [], results]


def _with_bytes(sides: Sequence[exp.Expr]) -> None:
    """Read text beside BYTES as text that is assigned to BYTES is read: DuckDB's forms are others."""
    if not any((known := infer(side)).kind is Kind.BYTES and not known.lists for side in sides):
        return
    for side in sides:
        while isinstance(side, exp.Paren):
            side = side.this
        if isinstance(side, exp.Parameter):
            side.meta[PROTO_META] = BYTES_GAP
        elif isinstance(side, exp.Literal) and side.is_string:
            side.replace(_bytes_of(side))


def _bytes_of(text: exp.Literal) -> exp.Anonymous:
    value = coerce(ColumnType(Kind.BYTES), text.name)
    found = exp.Anonymous(this="f1_to_bytes", expressions=[exp.Literal.string(f"\\x{bytes(value).hex()}")])  # type: ignore[arg-type]
    found.meta[META] = BYTES
    return found


# ---------------------------------------------------------------------- literals


def _swap(node: exp.Expr, found: exp.Expr) -> None:
    """Put ``found`` in the place of ``node``; what surrounds it still sees the type."""
    found.meta.setdefault(META, infer(node))
    node.replace(found)


_DIGITS = 308
"""More have no room in a DOUBLE, which is what a long literal is."""


def _number(node: exp.Expr) -> None:
    if node.args.get("is_string"):
        return
    text = str(node.this)
    if not text.isdecimal():
        if "e" in text.lower() and float(text) in (float("inf"),):
            raise F1Error(Code.OUT_OF_RANGE, f"{text} is out of range of DOUBLE")
        return
    whole = node.parent if isinstance(node.parent, exp.Neg) else node
    if len(text) > _DIGITS:
        raise F1Error(Code.OUT_OF_RANGE, f"a number of {len(text)} digits is out of range of DOUBLE")
    if int(text) > INT64_MAX + (whole is not node) or not _is_value(whole):
        return
    whole.replace(_cast_sql(exp.Var(this=f"-{text}" if whole is not node else text), "BIGINT", INT))


def _is_value(node: exp.Expr) -> bool:
    """Does a literal stand where its own type counts? DuckDB gives it 32 bits; ours are INT64."""
    parent = node.parent
    if isinstance(parent, exp.Alias):
        parent = parent.parent
    if isinstance(parent, exp.Select):
        return node.find_ancestor(exp.Select) is parent and node.arg_key in ("expressions", "this")
    if isinstance(parent, exp.Tuple):
        return isinstance(parent.parent, exp.Values)
    if isinstance(parent, exp.If | exp.Case):
        return node.arg_key in ("true", "default")
    if isinstance(parent, exp.Coalesce | exp.Sum | exp.Avg | exp.Min | exp.Max):
        return True
    if isinstance(parent, _ARITHMETIC):
        other = parent.expression if node is parent.this else parent.this
        kind = infer(other)
        return kind.kind is None or kind.literal
    return False


def _parameter(node: exp.Expr) -> None:
    number = node.name if isinstance(node.this, exp.Literal) else ""
    if not number.isdecimal() or not 1 <= int(number) <= 65_535:
        raise F1Error(Code.INVALID_ARGUMENT, "parameters are written ? or $1, $2, ...")
    kind = node.meta.get(PROTO_META) if node.meta else None
    _swap(node, _marker(f"{number}:{kind}" if kind else number))


def _marker(name: str) -> exp.Var:
    return exp.Var(this=f"\x01{name}\x02")


def _now(node: exp.Expr) -> None:
    _swap(node, _marker(_NOW))


def _today(node: exp.Expr) -> None:
    _swap(node, _cast_sql(_marker(_NOW), "DATE"))


def _time_of_day(node: exp.Expr) -> None:
    _swap(node, _cast_sql(_cast_sql(_marker(_NOW), "TIMESTAMP"), "TIME"))


# ---------------------------------------------------------------------- operators


def _multiply(node: exp.Expr) -> None:
    left, right = infer(node.this), infer(node.expression)
    if {left.kind, right.kind} <= {Kind.INT64, Kind.NUMERIC} and Kind.NUMERIC in (left.kind, right.kind):
        scale = sum(t.scale for t in (left, right) if t.kind is Kind.NUMERIC)
        if scale > NUMERIC_SCALE:
            _wrap(node, f"DECIMAL(38, {NUMERIC_SCALE})", SqlType(Kind.NUMERIC))


def _add(node: exp.Expr) -> None:
    for mine, other in (("this", "expression"), ("expression", "this")):
        days = node.args[other]
        number = infer(days).kind is Kind.INT64 and not isinstance(days, exp.Literal)
        if infer(node.args[mine]).kind is Kind.DATE and (number or str(days.this).startswith("\x01")):
            _wrap(days, "INT")


def _divide(node: exp.Expr) -> None:
    node.set("typed", False)
    node.set("safe", False)


def _like(node: exp.Expr) -> None:
    if isinstance(node.parent, exp.Escape):
        return
    pattern = node.expression
    if isinstance(pattern, exp.Literal) and "\\" not in pattern.name:
        return
    if isinstance(pattern, exp.Any | exp.All):
        return
    # The backslash escapes in PostgreSQL, nothing does in DuckDB.
    escape = exp.Escape(expression=exp.Literal.string("\\"))
    _swap(node, escape)
    escape.set("this", node)


def _substring(node: exp.Expr) -> None:
    arguments = [a for key in ("this", "start", "length") if (a := node.args.get(key)) is not None]
    if node.args.get("start") is None:
        arguments.insert(1, exp.Literal.number(1))
    _swap(node, exp.Anonymous(this="f1_substr", expressions=arguments))


# ---------------------------------------------------------------------- casts and types


def _cast_sql(node: exp.Expr, kind: str, known: SqlType | None = None) -> exp.Cast:
    cast = exp.Cast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))
    if known is not None:
        cast.meta[META] = known
    return cast


def _wrap(node: exp.Expr, kind: str, known: SqlType | None = None) -> None:
    cast = _cast_sql(exp.Null(), kind, known)
    _swap(node, cast)
    cast.set("this", node if not isinstance(node, exp.Binary) else exp.Paren(this=node))


def _cast(node: exp.Expr) -> None:
    kind = node.args.get("to")
    target = infer(node)
    operand = infer(node.this)
    if target.kind is Kind.STRING and not target.lists:
        _to_text(node, operand)
    elif target.kind is Kind.BOOL and operand.kind is Kind.STRING and not isinstance(node, exp.TryCast):
        _swap(node, exp.Anonymous(this="f1_bool", expressions=[node.this]))
        return
    elif target.kind is Kind.BYTES and isinstance(node.this, exp.Literal) and node.this.is_string:
        _swap(node, _bytes_of(node.this))
        return
    elif target.kind is Kind.BYTES and operand.kind is Kind.STRING:
        _swap(node, exp.Anonymous(this="f1_to_bytes", expressions=[node.this]))
        return
    elif operand.kind is Kind.TIMESTAMP and isinstance(kind, exp.DataType) and kind.this is exp.DType.TIME:
        _wrap(node.this, "TIMESTAMP")
    elif target.kind is Kind.BOOL and operand.kind in (Kind.DOUBLE, Kind.NUMERIC, Kind.DATE):
        raise F1Error(Code.INVALID_ARGUMENT, f"cannot cast {operand.name} to BOOL")
    if isinstance(kind, exp.DataType):
        node.set("to", exp.DataType.build(duck_type(kind), dialect="duckdb"))


def _to_text(node: exp.Expr, operand: SqlType) -> None:
    """Write numbers as text the way PostgreSQL does, and cut text to the length of VARCHAR(n)."""
    name = {Kind.NUMERIC: "f1_numeric_text", Kind.DOUBLE: "f1_double_text"}.get(operand.kind or Kind.BOOL)
    if name is not None and not operand.lists and not (operand.kind is Kind.NUMERIC and operand.scale < NUMERIC_SCALE):
        node.set("this", exp.Anonymous(this=name, expressions=[node.this]))
    sizes = [p.name for p in node.args["to"].expressions if p.name.isdecimal()]
    if sizes:
        call = exp.Anonymous(this="left")
        _swap(node, call)
        call.set("expressions", [node, exp.Literal.number(sizes[0])])


def duck_type(kind: exp.DataType) -> str:
    """Return DuckDB's name of a type. Raises F1Error INVALID_ARGUMENT for one that does not exist."""
    known = of_data_type(kind)
    if known.kind is Kind.NUMERIC and not known.lists:
        if not 1 <= known.precision <= 38 or not 0 <= known.scale <= known.precision:
            raise F1Error(Code.INVALID_ARGUMENT, f"NUMERIC({known.precision}, {known.scale}) is not possible")
        return f"DECIMAL({known.precision}, {known.scale})"
    if kind.this in (exp.DType.ARRAY, exp.DType.LIST) and kind.expressions:
        return f"{duck_type(kind.expressions[0])}[]"
    if known.kind is not None:
        return _DUCK_TYPES[known.kind]
    if kind.this in _PASSED_TYPES:
        return "JSON" if kind.this is exp.DType.JSONB else str(kind.sql("duckdb"))
    if kind.this is exp.DType.USERDEFINED and type_text(kind).lower() in ("hugeint", "ubigint", "uinteger"):
        return "HUGEINT"
    name = type_text(kind) or kind.sql("postgres")
    raise F1Error(Code.INVALID_ARGUMENT, f"there is no type {name}")


# ---------------------------------------------------------------------- functions


def _function(node: exp.Expr) -> None:
    name = function_name(node)
    if str(node.this).startswith("f1_"):
        return
    if name in (
        "now",
        "transaction_timestamp",
        "statement_timestamp",
        "clock_timestamp",
        "current_timestamp",
        "localtimestamp",
    ):
        _swap(node, _marker(_NOW))
        return
    if name in ("current_date", "today"):
        _swap(node, _cast_sql(_marker(_NOW), "DATE"))
        return
    if REFUSED.fullmatch(name):
        raise F1Error(Code.NOT_FOUND, f"there is no function {name}")
    if name == "mod" and len(node.expressions) == 2:
        _swap(node, exp.Paren(this=exp.Mod(this=_paren(node.expressions[0]), expression=_paren(node.expressions[1]))))
        return
    if name in _BY_NAME:
        _BY_NAME[name](node)
        return
    node.set("this", RENAMED.get(name, name))


def _length(node: exp.Expr) -> None:
    bytes_ = len(node.expressions) == 1 and infer(node.expressions[0]).kind is Kind.BYTES
    node.set("this", "octet_length" if bytes_ else "length")


def _encode(node: exp.Expr) -> None:
    bytes_ = bool(node.expressions) and infer(node.expressions[0]).kind is Kind.BYTES
    node.set("this", "f1_encode_bytes" if bytes_ else "f1_encode")


def _round(node: exp.Expr) -> None:
    """PostgreSQL rounds DOUBLE to the even neighbour and NUMERIC away from zero."""
    if len(node.expressions) == 1 and infer(node.expressions[0]).kind is Kind.DOUBLE:
        node.set("this", "round_even")
        node.append("expressions", exp.Literal.number(0))
    else:
        node.set("this", "f1_round")


def _time_format(node: exp.Expr) -> None:
    name = function_name(node)
    if len(node.expressions) != 2:
        node.set("this", name)
        return
    style = node.expressions[1]
    if not (isinstance(style, exp.Literal) and style.is_string):
        raise F1Error(Code.INVALID_ARGUMENT, f"the format of {name} must be a text constant")
    style.set("this", time_format(style.name))
    node.set("this", "strftime" if name == "to_char" else "strptime")
    if name == "to_date":
        _wrap(node, "DATE")


def _regexp_match(node: exp.Expr) -> None:
    """The groups of the first match as an array, or the match if the pattern has no groups."""
    pattern = node.expressions[1] if len(node.expressions) in (2, 3) else None
    if not isinstance(pattern, exp.Literal):
        raise F1Error(Code.INVALID_ARGUMENT, "the pattern of regexp_match must be a text constant")
    try:
        groups = re.compile(pattern.name).groups
    except re.error as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"no regular expression: {error}") from None
    flags = node.expressions[2:]
    text = node.expressions[0]
    found = [
        exp.Anonymous(
            this="regexp_extract",
            expressions=[text.copy(), pattern.copy(), exp.Literal.number(n), *(f.copy() for f in flags)],
        )
        for n in (range(1, groups + 1) if groups else [0])
    ]
    matches = exp.Anonymous(
        this="regexp_matches", expressions=[text.copy(), pattern.copy(), *(f.copy() for f in flags)]
    )
    _swap(node, exp.Case(ifs=[exp.If(this=matches, true=exp.Array(expressions=found))]))


def _null_for_nan(node: exp.Expr) -> None:
    """A correlation or slope of points that have none is NULL."""
    node.set("this", function_name(node))
    whole = node
    while isinstance(whole.parent, exp.Filter | exp.Window) and whole.parent.this is whole:
        whole = whole.parent
    call = exp.Anonymous(this="nullif", expressions=[_cast_sql(exp.Literal.string("NaN"), "DOUBLE")])
    _swap(whole, call)
    call.set("expressions", [whole, *call.expressions])


_BY_NAME: dict[str, Callable[[exp.Expr], None]] = {
    "corr": _null_for_nan,
    "regr_slope": _null_for_nan,
    "length": _length,
    "regexp_match": _regexp_match,
    "encode": _encode,
    "round": _round,
    "to_char": _time_format,
    "to_date": _time_format,
    "to_timestamp": _time_format,
}


def _paren(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Binary) else node


def _explode(node: exp.Expr) -> None:
    _swap(node, exp.Anonymous(this="unnest", expressions=[node.this]))


def _interval(node: exp.Expr) -> None:
    """INTERVAL '1 day 2 hours' has no unit; sqlglot splits simple ones, others are casts."""
    if node.args.get("unit") is None and node.this is not None:
        _swap(node, exp.Cast(this=node.this, to=exp.DataType.build("INTERVAL", dialect="duckdb")))


def _named(name: str) -> Callable[[exp.Expr], None]:
    def put(node: exp.Expr) -> None:
        _swap(node, exp.Literal.string(name))

    return put


def _select(node: exp.Expr) -> None:
    node.set("locks", None)


_HANDLERS: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Literal: _number,
    exp.Parameter: _parameter,
    exp.CurrentTimestamp: _now,
    exp.Localtimestamp: _now,
    exp.CurrentDate: _today,
    exp.CurrentTime: _time_of_day,
    exp.Localtime: _time_of_day,
    exp.CurrentUser: _named("f1"),
    exp.SessionUser: _named("f1"),
    exp.CurrentSchema: _named("public"),
    exp.Mul: _multiply,
    exp.Add: _add,
    exp.Sub: _add,
    exp.Div: _divide,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Substring: _substring,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Anonymous: _function,
    exp.Explode: _explode,
    exp.Interval: _interval,
    exp.Select: _select,
}


def nested_lists(kind: SqlType, levels: int) -> SqlType:
    """Return a type inside so many levels of list."""
    return replace(kind, lists=kind.lists + levels)
