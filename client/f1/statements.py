"""As much of SQL as a client has to see: where statements end, what kind one is, and rows of VALUES to be repeated.

Parsing is the servers' business. Here a statement is a sequence of tokens: words, strings, comments and single signs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*|/\*)
  | (?P<string>[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)
  | (?P<open>[eE]?'|"|`)
  | (?P<dollar>\$(?:[A-Za-z_]\w*)?\$)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Kind(Enum):
    """What a statement does, as far as a client must know."""

    QUERY = "query"
    DML = "dml"
    DDL = "ddl"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind (a group of the pattern), text and place. ``open``: a string that does not end."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next token starts."""
        return self.start + len(self.text)


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens of SQL. Comments (nested ones too) and quoted strings are one token each."""
    position = 0
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        if match is None:
            return
        kind = match.lastgroup or "sign"
        end = match.end()
        if kind == "comment" and match.group().startswith("/*"):
            end, kind = _end_of_comment(sql, position)
        elif kind == "dollar":
            close = sql.find(match.group(), end)
            kind, end = ("string", close + len(match.group())) if close >= 0 else ("open", len(sql))
        elif kind == "open":
            end = len(sql)
        yield Token(kind, sql[position:end], position)
        position = end


def _end_of_comment(sql: str, start: int) -> tuple[int, str]:
    depth, position = 0, start
    while position < len(sql):
        if sql.startswith("/*", position):
            depth, position = depth + 1, position + 2
        elif sql.startswith("*/", position):
            depth, position = depth - 1, position + 2
            if not depth:
                return position, "comment"
        else:
            position += 1
    return len(sql), "open"


def _meaningful(sql: str) -> Iterator[Token]:
    return (token for token in tokens(sql) if token.kind not in ("space", "comment"))


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a text: without the semicolon, from the line and column (from 1) at which it starts."""

    sql: str
    line: int
    column: int


def split(text: str) -> tuple[list[Piece], str]:
    """Split a text at its semicolons; return the statements, empty ones left out, and what follows the last one."""
    pieces: list[Piece] = []
    start = 0
    begun = False
    for token in tokens(text):
        if not begun and token.kind in ("space", "comment"):
            continue
        if token.kind == "sign" and token.text == ";":
            if begun:
                pieces.append(_piece(text, start, token.start))
            start, begun = token.end, False
        elif not begun:
            start, begun = token.start, True
    rest = text[start:]
    return pieces, rest if begun or is_open(rest) else ""


def split_all(text: str) -> list[Piece]:
    """Split a text whose last statement needs no semicolon."""
    pieces, rest = split(text)
    if rest.strip():
        pieces.append(_piece(text, len(text) - len(rest), len(text)))
    return pieces


def is_open(text: str) -> bool:
    """Tell whether a string or comment in the text has not ended."""
    return any(token.kind == "open" for token in tokens(text))


def _piece(text: str, start: int, end: int) -> Piece:
    line_start = text.rfind("\n", 0, start) + 1
    return Piece(text[start:end].rstrip(), text.count("\n", 0, start) + 1, start - line_start + 1)


_DML = frozenset({"insert", "update", "delete", "upsert", "merge", "replace"})
_DDL = frozenset({"create", "drop", "alter", "grant", "revoke", "truncate", "rename", "comment"})
_CONTROL = {
    "begin": Kind.BEGIN,
    "start": Kind.BEGIN,
    "commit": Kind.COMMIT,
    "end": Kind.COMMIT,
    "rollback": Kind.ROLLBACK,
    "abort": Kind.ROLLBACK,
}


def kind_of(sql: str) -> Kind:
    """Return what a statement does; what is not known counts as a query, and the server says what it thinks of it."""
    depth = 0
    first = ""
    for token in _meaningful(sql):
        word = token.text.lower()
        depth += {"(": 1, ")": -1}.get(word, 0) if token.kind == "sign" else 0
        if token.kind != "word":
            if not first and word not in ("(", ";"):
                return Kind.QUERY
            continue
        if first != "with":
            first = word
            if word != "with":
                break
        elif depth == 0 and word in _DML | {"select", "values", "table"}:
            return Kind.DML if word in _DML else Kind.QUERY
    if not first:
        return Kind.EMPTY
    if first in _DML:
        return Kind.DML
    if first in _DDL:
        return Kind.DDL
    return _CONTROL.get(first, Kind.QUERY)


def words(sql: str) -> list[str]:
    """Return the words of a statement in lower case."""
    return [token.text.lower() for token in _meaningful(sql) if token.kind == "word"]


def multiply_values(sql: str) -> tuple[str, str, str] | None:
    """Split an INSERT of one row of parameters: what comes before the row, the row and what comes after.

    None if the statement is no ``INSERT ... VALUES (...)`` with one row to its end: such a row may be repeated, and the
    statement does for all rows what it would do for each.
    """
    found = list(_meaningful(sql))
    if not found or found[0].text.lower() != "insert":
        return None
    at = next((i for i, token in enumerate(found) if token.kind == "word" and token.text.lower() == "values"), -1)
    if at < 0 or at + 1 >= len(found) or found[at + 1].text != "(":
        return None
    depth = 0
    for i in range(at + 1, len(found)):
        token = found[i]
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth == 0:
            rest = [later.text for later in found[i + 1 :]]
            if rest not in ([], [";"]):
                return None
            return sql[: found[at + 1].start], sql[found[at + 1].start : token.end], ""
    return None


def count_parameters(sql: str) -> int:
    """Return how many ``?`` stand in a statement."""
    return sum(1 for token in tokens(sql) if token.kind == "sign" and token.text == "?")
