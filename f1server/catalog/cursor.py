"""A place in the tokens of DDL, with what all of its grammar needs: expectations, names, texts in parentheses."""

from f1common.errors import Code, F1Error
from f1server.catalog.lexer import Lexeme, Token, position, tokenize
from f1server.catalog.statements import Position

_MAX_NAME = 128
_OPEN = {"(": ")", "[": "]", "{": "}"}


class Cursor:
    """A place in the tokens."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._tokens = tokenize(text, file)
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def at_end(self) -> bool:
        return self.peek().kind is Lexeme.END

    def sees(self, *expected: str) -> bool:
        """Are the next tokens these keywords or symbols?"""
        return all(self._is(self.peek(i), text) for i, text in enumerate(expected))

    @staticmethod
    def _is(token: Token, text: str) -> bool:
        if text[0].isalpha():
            return token.kind is Lexeme.WORD and token.text.upper() == text
        return token.kind is Lexeme.SYMBOL and token.text == text

    def accept(self, *expected: str) -> bool:
        if not self.sees(*expected):
            return False
        for _ in expected:
            self.take()
        return True

    def expect(self, expected: str, where: str) -> Token:
        if not self.sees(expected):
            raise self.wrong(f"expected {expected} {where}")
        return self.take()

    def here(self) -> Position:
        return position(self._text, self.peek().start, self._file)

    def wrong(self, message: str) -> F1Error:
        return self.here().error(Code.INVALID_ARGUMENT, f"{message}, found {self.peek().shown()}")

    def bare_wrong(self, message: str) -> F1Error:
        """Return an error that does not show what was found: it may be a secret."""
        return self.here().error(Code.INVALID_ARGUMENT, message)

    def text_since(self, first: Token) -> str:
        last = self._tokens[self._at - 1]
        return self._text[first.start : last.end]

    def name(self, what: str) -> str:
        token = self.peek()
        if token.kind not in (Lexeme.WORD, Lexeme.QUOTED) or not token.text:
            raise self.wrong(f"expected {what}")
        if len(token.text) > _MAX_NAME or "\x00" in token.text:
            raise self.wrong(f"a name has at most {_MAX_NAME} characters")
        self.take()
        return token.text

    def relation(self, what: str) -> str:
        """Read the name of a table, view or index; the schema ``public`` of PostgreSQL is accepted before it."""
        if self.sees("PUBLIC", "."):
            self.take()
            self.take()
        name = self.name(what)
        if self.sees("."):
            raise self.wrong(f"{what} has no schema before it")
        return name

    def skip_balanced(self) -> None:
        """Pass over one token, or over everything in parentheses if it opens some."""
        token = self.take()
        closing = _OPEN.get(token.text) if token.kind is Lexeme.SYMBOL else None
        while closing is not None and not self.accept(closing):
            if self.at_end():
                raise self.wrong(f"expected {closing}")
            self.skip_balanced()

    def in_parentheses(self, what: str) -> str:
        """Read a text in parentheses, which must not be empty, and return it without them."""
        self.expect("(", f"before {what}")
        first = self.peek()
        while not self.sees(")"):
            if self.at_end() or self.sees(";"):
                raise self.wrong(f"expected ) after {what}")
            self.skip_balanced()
        if self.peek() is first:
            raise self.wrong(f"expected {what}")
        text = self.text_since(first)
        self.take()
        return text

    def names_in_parentheses(self, what: str) -> tuple[str, ...]:
        self.expect("(", f"before {what}")
        names = [self.name("a column")]
        self.order()
        while self.accept(","):
            names.append(self.name("a column"))
            self.order()
        self.expect(")", f"or , after {what}")
        return tuple(names)

    def order(self) -> None:
        # Keys and indexes are read in both directions: the order that is asked for changes nothing.
        if not self.accept("ASC"):
            self.accept("DESC")
        if self.accept("NULLS") and not self.accept("FIRST"):
            self.expect("LAST", "or FIRST after NULLS")

    def if_not_exists(self) -> bool:
        return self.accept("IF", "NOT", "EXISTS")

    def if_exists(self) -> bool:
        return self.accept("IF", "EXISTS")

    def cascade(self) -> bool:
        """Read CASCADE, or RESTRICT, which is what happens without either."""
        cascade = self.accept("CASCADE")
        if not cascade:
            self.accept("RESTRICT")
        return cascade
