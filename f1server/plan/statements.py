"""SQL text becomes statements: what they are, before any name is looked up.

One text may hold several statements. DDL goes to :mod:`f1server.catalog.ddl`; SET, SHOW, EXPLAIN and the statements of
transactions are read here; the rest is sqlglot's. Places in errors count from the beginning of the whole text.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from f1common.errors import Code, F1Error
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.rolestatements import holds_password
from f1server.catalog.statements import DdlStatement
from f1server.plan.dialect import Tokens, check_depth, parse_tokens, tokenize

__all__ = [
    "BeginStatement",
    "CommitStatement",
    "DmlStatement",
    "ExplainStatement",
    "QueryStatement",
    "RollbackStatement",
    "SchemaChangeStatement",
    "SetStatement",
    "ShowStatement",
    "Statement",
    "parse",
    "require_parameters",
]


_LONGEST_KEPT = 8192
"""Characters of the longest text whose statements are kept for the next time."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryStatement:
    """SELECT, VALUES, TABLE and what joins them, which begins at ``start`` in the text ``sql``.

    ``as_of``: the expression of AS OF. ``parameters``: the highest number of one.
    """

    sql: str
    ast: exp.Expr = field(repr=False)
    as_of: exp.Expr | None = field(repr=False, default=None)
    tag: str = "SELECT"
    start: int = 0
    parameters: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DmlStatement:
    """INSERT, UPDATE or DELETE (``tag``). ``upsert``: INSERT OR UPDATE. ``parameters``: the highest number of one."""

    sql: str
    tag: str
    ast: exp.Expr = field(repr=False)
    upsert: bool = False
    parameters: int = 0


@dataclass(frozen=True, slots=True)
class SchemaChangeStatement:
    """CREATE, ALTER, DROP, GRANT or REVOKE."""

    sql: str = field(repr=False)
    tag: str
    ddl: DdlStatement


@dataclass(frozen=True, slots=True)
class PlacementStatement:
    """ALTER TABLE table SET PLACEMENT (ZONES = 'a,b,c', LEADER_ZONE = 'a'), or DROP PLACEMENT, which has neither."""

    table: str
    zones: tuple[str, ...] = ()
    leader_zone: str = ""
    tag: str = "ALTER TABLE"

    @property
    def action(self) -> str:
        """SET or DROP."""
        return "SET" if self.zones or self.leader_zone else "DROP"


@dataclass(frozen=True, slots=True)
class BeginStatement:
    """BEGIN [TRANSACTION]. ``kind``: optimistic, pessimistic, snapshot or empty for the session's default."""

    kind: str = ""
    tag: str = "BEGIN"


@dataclass(frozen=True, slots=True)
class CommitStatement:
    """COMMIT or END."""

    tag: str = "COMMIT"


@dataclass(frozen=True, slots=True)
class RollbackStatement:
    """ROLLBACK or ABORT."""

    tag: str = "ROLLBACK"


@dataclass(frozen=True, slots=True)
class SetStatement:
    """SET name TO value; RESET name has the value None."""

    name: str
    value: str | None
    tag: str = "SET"


@dataclass(frozen=True, slots=True)
class ShowStatement:
    """SHOW what [name]: TABLES, COLUMNS (of name), INDEXES (of name), VIEWS, DATABASES, CREATE (name), SCHEMA, or a
    setting."""

    what: str
    name: str = ""
    tag: str = "SHOW"


@dataclass(frozen=True, slots=True)
class ExplainStatement:
    """EXPLAIN of a query or of INSERT, UPDATE, DELETE."""

    statement: QueryStatement | DmlStatement
    json: bool = False
    analyze: bool = False
    tag: str = "EXPLAIN"


Statement = (
    QueryStatement
    | DmlStatement
    | SchemaChangeStatement
    | PlacementStatement
    | BeginStatement
    | CommitStatement
    | RollbackStatement
    | SetStatement
    | ShowStatement
    | ExplainStatement
)


class _NotKept(Exception):
    """Carries statements that must not be kept: they hold a password."""

    def __init__(self, statements: tuple[Statement, ...]) -> None:
        super().__init__()
        self.statements = statements


@lru_cache(maxsize=512)
def _parse_short(sql: str) -> tuple[Statement, ...]:
    found = _parse_all(sql)
    if any(isinstance(s, SchemaChangeStatement) and holds_password(s.ddl) for s in found):
        raise _NotKept(found)
    return found


def _parse_all(sql: str) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    start = 0
    tokens = tokenize(sql)
    for index in range(len(tokens) + 1):
        if index == len(tokens) or tokens[index].token_type is TokenType.SEMICOLON:
            if index > start:
                statements.append(_statement(Tokens(sql, tuple(tokens[start:index]))))
            start = index + 1
    return tuple(statements)


def parse(sql: str) -> list[Statement]:
    """Parse a text of statements separated by semicolons; an empty one has none.

    Raises F1Error INVALID_ARGUMENT with details ``line`` and ``column`` (from 1), FAILED_PRECONDITION for DDL that is
    understood but not possible.
    """
    if len(sql) > 10_000_000:
        raise F1Error(
            Code.INVALID_ARGUMENT, f"the statement has {len(sql)} characters; at most 10,000,000 are possible"
        )
    try:
        return list(_parse_short(sql) if len(sql) <= _LONGEST_KEPT else _parse_all(sql))
    except _NotKept as error:
        return list(error.statements)


def require_parameters(statement: Statement, given: int) -> None:
    """Raise INVALID_ARGUMENT unless as many parameters are given as a statement has."""
    inner = statement.statement if isinstance(statement, ExplainStatement) else statement
    wanted = inner.parameters if isinstance(inner, QueryStatement | DmlStatement) else 0
    if given != wanted:
        has = "no parameters" if not wanted else "1 parameter" if wanted == 1 else f"{wanted} parameters"
        text = f"the statement has {has}, but {given} {'was' if given == 1 else 'were'} given; they are written ? or $1"
        raise F1Error(Code.INVALID_ARGUMENT, text)


def _statement(source: Tokens) -> Statement:
    first = source.word(0)
    reader = _READERS.get(first)
    if reader is not None:
        return reader(source)
    if first not in ("SELECT", "WITH", "VALUES", "TABLE", "("):
        raise source.error(0, f"there is no statement {source.tokens[0].text}")
    return _query(source)


def _query(source: Tokens) -> QueryStatement | DmlStatement:
    ast, as_of = parse_tokens(source)
    if isinstance(ast, exp.Insert | exp.Update | exp.Delete):
        return DmlStatement(source.text, type(ast).__name__.upper(), ast, parameters=_parameters(ast))
    if not isinstance(ast, exp.Query | exp.Values):
        raise source.error(0, "expected a query")
    if any(node.args.get("into") for node in ast.find_all(exp.Select)):
        raise source.error(0, "SELECT INTO is written CREATE TABLE ... AS SELECT")
    used = max(_parameters(ast), _parameters(as_of))
    return QueryStatement(source.text, ast, as_of, start=int(source.tokens[0].start), parameters=used)


def _parameters(ast: exp.Expr | None) -> int:
    names = () if ast is None else (node.name for node in ast.find_all(exp.Parameter))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _dml(source: Tokens) -> DmlStatement:
    upsert = source.word(0) == "INSERT" and source.word(1) == "OR" and source.word(2) in ("UPDATE", "REPLACE")
    if source.word(0) in ("UPSERT", "REPLACE"):
        insert = Token(TokenType.INSERT, "INSERT", 1, 1, source.tokens[0].start, source.tokens[0].end)
        source = Tokens(source.text, (insert, *source.tokens[1:]))
        upsert = True
    elif upsert:
        source = Tokens(source.text, (source.tokens[0], *source.tokens[3:]))
    ast, as_of = parse_tokens(source)
    if as_of is not None:
        raise source.error(0, "AS OF reads the past: it has no place in a statement that writes")
    if not isinstance(ast, exp.Insert | exp.Update | exp.Delete):
        raise source.error(0, "expected INSERT, UPDATE or DELETE")
    return DmlStatement(source.text, type(ast).__name__.upper(), ast, upsert, _parameters(ast))


def _ddl(source: Tokens) -> SchemaChangeStatement:
    if source.word(1) in ("TEMP", "TEMPORARY"):
        raise source.error(1, "there are no temporary tables and views: use WITH, or a table that is dropped again")
    check_depth(source)
    # What stands before keeps its line breaks, so that places in errors are right.
    start = source.tokens[0].start
    before = "".join(c if c == "\n" else " " for c in source.text[:start])
    found = parse_ddl(before + source.text[start : source.tokens[-1].end + 1])
    if len(found) != 1:
        raise source.error(0, "expected one statement")
    verb = source.word(0)
    tag = verb
    if verb not in ("GRANT", "REVOKE"):
        tag = f"{verb} {type(found[0]).__name__.removeprefix(verb.capitalize()).upper()}"
    return SchemaChangeStatement(source.text, tag, found[0])


def _alter(source: Tokens) -> SchemaChangeStatement | PlacementStatement:
    words = [source.word(i) for i in range(len(source.tokens))]
    if words[1:2] != ["TABLE"] or "PLACEMENT" not in words:
        return _ddl(source)
    index = words.index("PLACEMENT")
    if words[index - 1] not in ("SET", "DROP"):
        return _ddl(source)
    name = "".join(str(token.text) for token in source.tokens[2 : index - 1]).removeprefix("public.")
    if not name:
        raise source.error(2, "expected the name of a table")
    if words[index - 1] == "DROP":
        if index + 1 < len(words):
            raise source.error(index + 1, f"unexpected {source.tokens[index + 1].text} after PLACEMENT")
        return PlacementStatement(name)
    return _placement(source, name, index + 1)


def _placement(source: Tokens, name: str, index: int) -> PlacementStatement:
    """Read what follows SET PLACEMENT: ``(ZONES = '...', LEADER_ZONE = '...')``, either of them or both."""
    found: dict[str, str] = {}
    closing = "("
    while source.word(index) == closing:
        option = source.word(index + 1)
        if option not in ("ZONES", "LEADER_ZONE") or option in found or source.word(index + 2) != "=":
            raise source.error(index + 1, "expected ZONES = 'a,b,c' or LEADER_ZONE = 'a', each at most once")
        value = source.tokens[index + 3] if index + 3 < len(source.tokens) else None
        if value is None or value.token_type is not TokenType.STRING or not value.text.strip():
            raise source.error(index + 3, f"expected the value of {option} as a string")
        found[option] = str(value.text)
        index, closing = index + 4, ","
    if not found or source.word(index) != ")" or index + 1 < len(source.tokens):
        at = index + 1 if found and source.word(index) == ")" else index
        raise source.error(at, "expected (ZONES = 'a,b,c', LEADER_ZONE = 'a') after SET PLACEMENT, and no more")
    zones = tuple(zone.strip() for zone in found.get("ZONES", "").split(",") if zone.strip())
    return PlacementStatement(name, zones, found.get("LEADER_ZONE", "").strip())


def _begin(source: Tokens) -> BeginStatement:
    words = [source.word(i) for i in range(1, len(source.tokens))]
    if source.word(0) == "START" and words[:1] != ["TRANSACTION"]:
        raise source.error(1, "expected TRANSACTION after START")
    kind = ""
    for word in words:
        if word in ("OPTIMISTIC", "PESSIMISTIC", "SNAPSHOT"):
            kind = word.lower()
        elif word == "SERIALIZABLE":
            kind = "pessimistic"
        elif word == "ONLY":
            kind = "snapshot"
        elif word not in _BEGIN_WORDS:
            raise source.error(words.index(word) + 1, f"expected OPTIMISTIC, PESSIMISTIC or SNAPSHOT, found {word}")
    return BeginStatement(kind)


_BEGIN_WORDS = frozenset(
    {*("TRANSACTION", "WORK", "ISOLATION", "LEVEL", "READ", "WRITE", "REPEATABLE", "COMMITTED", "UNCOMMITTED", ",")}
    | {"ISOLATION LEVEL", "READ WRITE", "READ ONLY"}
)


def _end(source: Tokens) -> CommitStatement | RollbackStatement:
    for index in range(1, len(source.tokens)):
        if source.word(index) not in ("TRANSACTION", "WORK"):
            raise source.error(index, f"unexpected {source.tokens[index].text}; there are no savepoints")
    return CommitStatement() if source.word(0) in ("COMMIT", "END") else RollbackStatement()


def _set(source: Tokens) -> SetStatement:
    index = 2 if source.word(1) in ("SESSION", "LOCAL") else 1
    name = []
    while index < len(source.tokens) and source.word(index) not in ("=", "TO"):
        name.append(str(source.tokens[index].text))
        index += 1
    if not name:
        raise source.error(1, "expected the name of a setting")
    text = ".".join(n for n in name if n != ".").lower()
    if source.word(0) == "RESET":
        return SetStatement(text, None, "RESET")
    if index + 1 >= len(source.tokens):
        raise source.error(index, "expected = or TO and a value")
    value = " ".join(str(t.text) for t in source.tokens[index + 1 :])
    return SetStatement(text, None if value.upper() == "DEFAULT" else value)


def _show(source: Tokens) -> ShowStatement:
    words = [str(t.text) for t in source.tokens[1:] if t.text.upper() not in ("FROM", "ALL", "OF", "IN", "FULL")]
    if source.word(0) in ("DESCRIBE", "DESC"):
        words.insert(0, "columns")
    if not words:
        raise source.error(
            1, "expected TABLES, COLUMNS FROM table, INDEXES, VIEWS, DATABASES, SCHEMA or CREATE TABLE name"
        )
    what = words[0].upper()
    what = {"INDEX": "INDEXES", "FIELDS": "COLUMNS"}.get(what, what)
    name = ".".join(w for w in words[1:] if w != "." and not (what == "CREATE" and w.upper() in ("TABLE", "VIEW")))
    if what in ("COLUMNS", "CREATE") and not name:
        raise source.error(len(source.tokens), f"expected the name of a table after {what}")
    return ShowStatement(what, name.removeprefix("public."))


def _explain(source: Tokens) -> ExplainStatement:
    index = 1
    json = analyze = False
    if source.word(1) == "(":
        index = 2
        while source.word(index) not in (")", ""):
            word = source.word(index)
            if word == "FORMAT":
                index += 1
                json = source.word(index) == "JSON"
                if source.word(index) not in ("JSON", "TEXT"):
                    raise source.error(index, "the formats are TEXT and JSON")
            elif word in ("ANALYZE", "ANALYSE"):
                analyze = source.word(index + 1) not in ("FALSE", "OFF")
            elif word not in (",", "VERBOSE", "COSTS", "TRUE", "FALSE", "ON", "OFF"):
                raise source.error(
                    index, f"EXPLAIN has no option {source.tokens[index].text}: FORMAT and ANALYZE are possible"
                )
            index += 1
        index += 1
    while source.word(index) in ("ANALYZE", "ANALYSE", "VERBOSE"):
        analyze = analyze or source.word(index) != "VERBOSE"
        index += 1
    inner = _statement(Tokens(source.text, source.tokens[index:])) if index < len(source.tokens) else None
    if not isinstance(inner, QueryStatement | DmlStatement):
        raise source.error(index, "expected a query, INSERT, UPDATE or DELETE after EXPLAIN")
    return ExplainStatement(inner, json, analyze)


_READERS: dict[str, Callable[[Tokens], Statement]] = {
    **dict.fromkeys(("CREATE", "DROP", "GRANT", "REVOKE"), _ddl),
    "ALTER": _alter,
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "UPSERT", "REPLACE"), _dml),
    **dict.fromkeys(("BEGIN", "START"), _begin),
    **dict.fromkeys(("COMMIT", "END", "ROLLBACK", "ABORT"), _end),
    **dict.fromkeys(("SET", "RESET"), _set),
    **dict.fromkeys(("SHOW", "DESCRIBE", "DESC"), _show),
    "EXPLAIN": _explain,
}
