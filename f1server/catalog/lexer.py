"""Words and symbols of DDL, with their places: sqlglot's PostgreSQL tokenizer without its keywords.

Keywords are recognised by the parser where they can stand, so that any of them may also be a name.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from f1common.errors import Code, F1Error
from f1server.catalog.statements import Position


class _Tokenizer(Postgres.Tokenizer):
    KEYWORDS = {  # noqa: RUF012 - sqlglot's metaclass reads it
        text: kind
        for text, kind in Postgres.Tokenizer.KEYWORDS.items()
        if not text[0].isalpha() and text[0] not in "{%"
    }
    BIT_STRINGS = []  # noqa: RUF012
    HEX_STRINGS = []  # noqa: RUF012
    COMMANDS = set()  # noqa: RUF012


class Lexeme(Enum):
    """What a token is."""

    WORD = "word"
    QUOTED = "name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token; ``start`` and ``end`` (exclusive) are offsets in the source text."""

    kind: Lexeme
    text: str
    start: int
    end: int

    def shown(self) -> str:
        """Return the token as an error message names it."""
        match self.kind:
            case Lexeme.END:
                return "the end"
            case Lexeme.STRING:
                return f"the string {self.text[:40]!r}"
            case _:
                return self.text[:60]


_KINDS = {
    TokenType.VAR: Lexeme.WORD,
    TokenType.IDENTIFIER: Lexeme.QUOTED,
    TokenType.STRING: Lexeme.STRING,
    TokenType.BYTE_STRING: Lexeme.STRING,
    TokenType.HEREDOC_STRING: Lexeme.STRING,
    TokenType.NATIONAL_STRING: Lexeme.STRING,
    TokenType.UNICODE_STRING: Lexeme.STRING,
    TokenType.NUMBER: Lexeme.NUMBER,
}


@cache
def _dialect() -> Postgres:
    return Postgres()


def position(text: str, offset: int, file: str = "") -> Position:
    """Return line and column of an offset."""
    before = text[:offset]
    line = before.count("\n") + 1
    return Position(line, offset - (before.rfind("\n") + 1) + 1, file)


def tokenize(text: str, file: str = "") -> list[Token]:
    """Split a text into tokens; the last one is the end. Raises F1Error INVALID_ARGUMENT, with line and column."""
    try:
        found = _Tokenizer(dialect=_dialect()).tokenize(text)
    except TokenError as error:
        raise _unreadable(text, file, error) from error
    tokens = [Token(_KINDS.get(t.token_type, Lexeme.SYMBOL), t.text, t.start, t.end + 1) for t in found]
    tokens.append(Token(Lexeme.END, "", len(text), len(text)))
    return tokens


def _unreadable(text: str, file: str, error: TokenError) -> F1Error:
    cause = error.__cause__ or error.__context__ or error
    place = re.search(r"from (\d+):\d+", str(cause))
    missing = re.search(r"Missing (\S+)", str(cause))
    if not place or not missing:
        return position(text, len(text), file).error(Code.INVALID_ARGUMENT, "the text cannot be read as SQL")
    quote, row = missing[1], int(place[1])
    lines = text.split("\n")
    line = lines[row - 1] if row <= len(lines) else ""
    # Only the line is to be trusted. Nothing closes the text, so its last quote opens it, but for doubled ones.
    start = line.rfind(quote)
    while start > 0 and line[start - 1] == quote:
        start = line.rfind(quote, 0, start - 1)
    return Position(row, max(start, 0) + 1, file).error(
        Code.INVALID_ARGUMENT, f"a text that begins here has no closing {quote}"
    )
