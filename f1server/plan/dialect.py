"""Our SQL for sqlglot: its postgres dialect, plus PROTO JOIN, AS OF and PROTO<message>.

sqlglot's parser is compiled and cannot be extended by a subclass, so what is ours is translated between its tokenizer
and its parser: a few tokens become others that mean the same, and keep their places in the text for error messages.

Function calls stay as the user wrote them wherever their syntax is plain: sqlglot would turn many into a canonical form
and that into something else for DuckDB. Their names get a prefix on the way through the parser (:func:`function_name`
takes it off); what must differ is said in :mod:`f1server.plan.functions`.
"""

import re
from dataclasses import dataclass
from functools import cache

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from f1common.errors import Code, F1Error
from f1server.catalog.lexer import position

_PREFIX = "f1fn_"
_PARSED_FUNCTIONS = frozenset(
    {
        *(
            "COUNT",
            "SUM",
            "AVG",
            "MIN",
            "MAX",
            "COALESCE",
            "NULLIF",
            "CAST",
            "TRY_CAST",
            "EXTRACT",
            "OVERLAY",
            "POSITION",
        ),
        *(
            "STRING_AGG",
            "SUBSTRING",
            "TRIM",
            "CASE",
            "ANY",
            "SOME",
            "ALL",
            "EXISTS",
            "UNNEST",
            "ARRAY",
            "ROW",
            "VALUES",
        ),
        *("IN", "AND", "OR", "NOT", "USING", "ON", "AS", "OVER", "FILTER", "DISTINCT", "BY", "SETS", "ROLLUP", "CUBE"),
        *("NOW", "INTERVAL", "GREATEST", "LEAST", "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "FIRST_VALUE"),
        *("LAST_VALUE", "NTILE", "NTH_VALUE", "CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "LOCALTIMESTAMP"),
        *(
            "INTO",
            "FROM",
            "WHERE",
            "SELECT",
            "JOIN",
            "CONFLICT",
            "MATERIALIZED",
            "IS",
            "LIKE",
            "ILIKE",
            "BETWEEN",
            "SET",
        ),
        *(
            "WITH",
            "UNION",
            "EXCEPT",
            "INTERSECT",
            "LIMIT",
            "OFFSET",
            "HAVING",
            "RETURNING",
            "WHEN",
            "THEN",
            "ELSE",
            "TO",
        ),
        *("GROUP", "WITHIN", "LATERAL", "TABLE", "ORDER", "PARTITION", "WINDOW", "ESCAPE", "SIMILAR", "DEFAULT", "END"),
    }
)
_OPERAND_STARTS = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
_ENDS_OF_TIME = frozenset(
    {
        *(
            "WHERE",
            "GROUP BY",
            "HAVING",
            "ORDER BY",
            "LIMIT",
            "OFFSET",
            "FETCH",
            "UNION",
            "EXCEPT",
            "INTERSECT",
            "WINDOW",
        ),
        *(
            "JOIN",
            "LEFT",
            "RIGHT",
            "FULL",
            "INNER",
            "CROSS",
            "NATURAL",
            "ON",
            "USING",
            "PROTO",
            "FOR",
            "RETURNING",
            "AS",
        ),
        *(",", ")", ";"),
    }
)
_MAX_DEPTH = 200
_OPENING = frozenset({"(", "[", "CASE"})
_CLOSING = frozenset({")", "]", "END"})
_PREFIXES = frozenset({"NOT", "-", "+", "~"})
_LONG = 400
_CHAIN = 50
_BEFORE_VALUES = frozenset({"SELECT", "WHERE", ",", "(", "AND", "OR", "WHEN", "THEN", "ELSE", "ON", "BY", "HAVING"})
_NO_TIME = frozenset({"", ".", "(", "FROM", "=", *_ENDS_OF_TIME})


class F1Dialect(Postgres):
    """PostgreSQL's dialect with a tokenizer that takes no statement whole."""

    class Tokenizer(Postgres.Tokenizer):
        """PostgreSQL's tokens."""

        COMMANDS = set()  # noqa: RUF012
        KEYWORDS = {  # noqa: RUF012 - sqlglot's metaclass reads it
            text: kind for text, kind in Postgres.Tokenizer.KEYWORDS.items() if text[0] not in "{"
        }


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one statement, and the text that all its statements are in."""

    text: str
    tokens: tuple[Token, ...]

    def word(self, index: int) -> str:
        """Return a token in upper case, or an empty text after the end."""
        if not 0 <= index < len(self.tokens) or self.tokens[index].token_type is TokenType.IDENTIFIER:
            return ""
        return str(self.tokens[index].text).upper()

    def error(self, index: int, message: str) -> F1Error:
        """Return an INVALID_ARGUMENT error that points at a token."""
        offset = self.tokens[index].start if 0 <= index < len(self.tokens) else len(self.text.rstrip())
        return position(self.text, offset).error(Code.INVALID_ARGUMENT, message)


@cache
def dialect() -> F1Dialect:
    """Return the dialect."""
    return F1Dialect()


def tokenize(sql: str) -> list[Token]:
    """Split SQL into tokens. Raises F1Error INVALID_ARGUMENT with details ``line`` and ``column``."""
    try:
        # The tokenizer looks for the end of a text that $1 might begin, and fails over an escape that ends everything.
        return list(dialect().tokenize(f"{sql} "))
    except (TokenError, ValueError, RecursionError) as error:
        cause = str(error.__cause__ or error.__context__ or error)
        place = re.search(r"from (\d+):(\d+)", cause)
        missing = re.search(r"Missing (\S+)", cause)
        # The second number counts from the beginning of the text.
        offset = min(int(place[2]), len(sql)) if place else len(sql)
        said = f"a text that begins here has no closing {missing[1]}" if missing else "this cannot be read as SQL"
        raise position(sql, offset).error(Code.INVALID_ARGUMENT, said) from None


def parse_tokens(source: Tokens) -> tuple[exp.Expr, exp.Expr | None]:
    """Parse one statement and return it with the expression of its AS OF, if it has one.

    Raises F1Error INVALID_ARGUMENT with details ``line`` and ``column``.
    """
    check_depth(source)
    tokens, times = _translate(source)
    statement = _parse(source.text, tokens)
    if len(tokens) > _LONG:
        statement = _balanced(statement)
    found = [_parse_expression(source.text, time) for time in times]
    if any(time != found[0] for time in found[1:]):
        raise F1Error(Code.INVALID_ARGUMENT, "a statement reads at one timestamp: its AS OF clauses differ")
    return statement, found[0] if found else None


def check_depth(source: Tokens) -> None:
    """Refuse what is nested so deeply that the compiled parser would run out of stack, which Python cannot catch."""
    depth = prefixes = 0
    for index in range(len(source.tokens)):
        word = source.word(index)
        depth += 1 if word in _OPENING else -1 if word in _CLOSING else 0
        prefixes = prefixes + 1 if word in _PREFIXES else 0
        if depth > _MAX_DEPTH or prefixes > _MAX_DEPTH:
            raise source.error(index, f"the statement is nested more than {_MAX_DEPTH} levels deep")


def _balanced(root: exp.Expr) -> exp.Expr:
    """Turn long chains of AND, OR and || into flat trees: the parser makes them as deep as they are long."""
    for kind in (exp.And, exp.Or, exp.DPipe):
        for node in list(root.find_all(kind)):
            if isinstance(node.parent, kind):
                continue
            parts: list[exp.Expr] = []
            at: exp.Expr = node
            while isinstance(at, kind):
                parts.append(at.expression)
                at = at.this
            parts.append(at)
            if len(parts) < _CHAIN:
                continue
            parts.reverse()
            hole = exp.Null()
            node.replace(hole)
            while len(parts) > 1:
                pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
                parts = [kind(this=p[0], expression=p[1]) if len(p) == 2 else p[0] for p in pairs]
            hole.replace(parts[0])
    return root


def parse_expression(sql: str) -> exp.Expr:
    """Parse one expression. Raises F1Error INVALID_ARGUMENT."""
    tokens, _ = _translate(Tokens(sql, tuple(tokenize(sql))))
    return _parse_expression(sql, tokens)


def function_name(node: exp.Expr) -> str:
    """Return the lower-case name of a function that was kept as it was written, or an empty text."""
    if not isinstance(node, exp.Anonymous):
        return ""
    return str(node.name if isinstance(node.this, exp.Expr) else node.this).lower().removeprefix(_PREFIX)


def proto_name(kind: exp.Expr | None) -> str:
    """Return the message of a ``PROTO<message>``, or an empty text for another type."""
    if not isinstance(kind, exp.DataType) or kind.this is not exp.DType.USERDEFINED:
        return ""
    found = kind.args.get("kind")
    text = found.name if isinstance(found, exp.Expr) else str(found or "")
    return text[6:-1] if text.startswith("PROTO<") else ""


def _parse(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        found = PostgresParser(dialect=dialect()).parse(tokens, text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except (RecursionError, ValueError, TypeError, AttributeError, IndexError, AssertionError):
        raise F1Error(Code.INVALID_ARGUMENT, "the statement cannot be parsed (is it nested too deeply?)") from None
    if len(found) != 1 or found[0] is None:
        raise F1Error(Code.INVALID_ARGUMENT, "expected one statement")
    for name in found[0].find_all(exp.Identifier):
        if str(name.this).startswith(_PREFIX):
            name.set("this", str(name.this)[len(_PREFIX) :])
    return found[0]


def _parse_expression(text: str, tokens: list[Token]) -> exp.Expr:
    statement = _parse(text, [Token(TokenType.SELECT, "SELECT", 1, 1, 0, 0), *tokens])
    if not isinstance(statement, exp.Select) or len(statement.expressions) != 1 or statement.args.get("from_"):
        raise F1Error(Code.INVALID_ARGUMENT, f"expected one expression: {text[:60]}")
    found = statement.expressions[0]
    expression: exp.Expr = found.pop()
    return expression


def _syntax_error(text: str, error: ParseError) -> F1Error:
    first = error.errors[0] if error.errors else {}
    message = str(first.get("description") or "this cannot be parsed").rstrip(".")
    near = str(first.get("highlight") or "").removeprefix(_PREFIX)
    message = re.sub(r" but got .*", "", message)
    if "Required keyword" in message or "<class" in message:
        message = "something is missing"
    elif message.startswith("Invalid expression"):
        message = "unexpected token"
    said = f"syntax error: {message[:1].lower()}{message[1:]}" + (f" at {near[:40]!r}" if near else " at the end")
    line, column = int(first.get("line") or 0), int(first.get("col") or 0)
    if not line:
        return position(text, len(text)).error(Code.INVALID_ARGUMENT, said)
    # sqlglot gives the column of a token's last character.
    offset = sum(len(one) + 1 for one in text.split("\n")[: line - 1]) + max(0, column - max(1, len(near)))
    return position(text, min(offset, len(text))).error(Code.INVALID_ARGUMENT, said)


def _translate(source: Tokens) -> tuple[list[Token], list[list[Token]]]:
    """Return the tokens for sqlglot's parser, and those of each AS OF expression."""
    found: list[Token] = []
    times: list[list[Token]] = []
    source = _numbered(source)
    index = 0
    while index < len(source.tokens):
        token = source.tokens[index]
        word = source.word(index)
        if word == "AS" and source.word(index + 1) == "OF" and source.word(index + 2) not in _NO_TIME | {"OF"}:
            index, time = _as_of(source, index)
            times.append(time)
            while found and found[-1].text.upper() in ("SYSTEM_TIME", "FOR"):
                found.pop()
        elif word == "PROTO" and source.word(index + 1) == "JOIN":
            index = _proto_join(source, index, found)
        elif word == "PROTO" and source.word(index + 1) == "<":
            index = _proto_type(source, index, found)
        else:
            found.append(_renamed(source, index, token, word))
            index += 1
    return found, times


def _numbered(source: Tokens) -> Tokens:
    """Write ``?`` as $1, $2 and so on, in the order of the text: the parser's tree has another order."""
    if not any(token.token_type is TokenType.PLACEHOLDER for token in source.tokens):
        return source
    found: list[Token] = []
    number = 0
    for token in source.tokens:
        if token.token_type is TokenType.PLACEHOLDER:
            number += 1
            found += [_with_text(token, TokenType.PARAMETER, "$"), _with_text(token, TokenType.NUMBER, str(number))]
        else:
            found.append(token)
    return Tokens(source.text, tuple(found))


def _renamed(source: Tokens, index: int, token: Token, word: str) -> Token:
    """Give a function that keeps its name the prefix, so that the parser does not know it."""
    called = word in ("LIKE", "ILIKE") and source.word(index - 1) in _BEFORE_VALUES
    if (
        source.word(index + 1) != "("
        or (word in _PARSED_FUNCTIONS and not called)
        or not re.fullmatch(r"[^\W\d]\w*", word)
    ):
        return token
    before = source.word(index - 1)
    if before in ("AS", "INTO", "WITH", "RECURSIVE", "TABLE", "::", ",") and _is_column_list(source, index):
        return token
    if token.token_type not in _OPERAND_STARTS and before in ("AS", "::"):
        return token  # the name of a type: CAST(x AS DECIMAL(10, 2))
    return _with_text(token, TokenType.VAR, _PREFIX + str(token.text))


def _is_column_list(source: Tokens, index: int) -> bool:
    """Does a name before a parenthesis name a table with its columns: INTO t (a, b), WITH t (a, b) AS, AS t (a, b)?"""
    before = source.word(index - 1)
    if before in ("AS", "INTO", "RECURSIVE", "TABLE", "::"):
        return True
    depth = 0
    for at in range(index + 1, len(source.tokens)):
        depth += {"(": 1, ")": -1}.get(source.word(at), 0)
        if depth == 0:
            return source.word(at + 1) == "AS" and source.word(at + 2) in ("(", "MATERIALIZED", "NOT")
    return False


def _as_of(source: Tokens, index: int) -> tuple[int, list[Token]]:
    index += 2
    if source.word(index) == "SYSTEM" and source.word(index + 1) == "TIME":
        index += 2
    time: list[Token] = []
    depth = 0
    while index < len(source.tokens):
        word = source.word(index)
        if depth == 0 and word in _ENDS_OF_TIME:
            break
        depth += {"(": 1, ")": -1}.get(word, 0)
        time.append(_renamed(source, index, source.tokens[index], word))
        index += 1
    if not time:
        raise source.error(index, "expected a timestamp after AS OF")
    return index, time


def _proto_join(source: Tokens, index: int, found: list[Token]) -> int:
    """PROTO JOIN path AS f becomes CROSS JOIN path AS f; LEFT PROTO JOIN gets ON TRUE."""
    proto = source.tokens[index]
    left = bool(found) and found[-1].token_type is TokenType.LEFT
    if found and found[-1].token_type is TokenType.OUTER and len(found) > 1:
        left = found[-2].token_type is TokenType.LEFT
    if found and found[-1].token_type is TokenType.INNER:
        found.pop()
    if not left:
        found.append(_with_text(proto, TokenType.CROSS, "CROSS"))
    found.append(source.tokens[index + 1])
    index += 2
    start = index
    while index < len(source.tokens) and (index == start or source.word(index) == "."):
        found += source.tokens[index : index + (1 if index == start else 2)]
        index += 1 if index == start else 2
    if index - start < 3:
        raise source.error(start, "PROTO JOIN needs the path of a repeated field, as in c.Whitelist.feature")
    if source.word(index) == "AS" and source.word(index + 1) != "OF":
        found.append(source.tokens[index])
        index += 1
    at_alias = index < len(source.tokens) and source.tokens[index].token_type in _OPERAND_STARTS
    if at_alias and not (source.word(index) == "PROTO" and source.word(index + 1) == "JOIN"):
        found.append(source.tokens[index])
        index += 1
    if left and source.word(index) != "ON":
        found.append(_with_text(proto, TokenType.ON, "ON"))
        found.append(_with_text(proto, TokenType.TRUE, "TRUE"))
    return index


def _proto_type(source: Tokens, index: int, found: list[Token]) -> int:
    token = source.tokens[index]
    name = ""
    index += 2
    while index < len(source.tokens) and source.word(index) != ">":
        name += str(source.tokens[index].text) + " "
        index += 1
    name = name.replace(" . ", ".").strip()
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) or index >= len(source.tokens):
        raise source.error(index, "expected PROTO<the full name of a message>")
    found.append(_with_text(token, TokenType.IDENTIFIER, f"PROTO<{name}>"))
    return index + 1


def _with_text(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)
