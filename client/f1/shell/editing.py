"""What helps to type a statement: completion of words, colours, and when Enter ends the input."""

from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from f1.metadata import Metadata
from f1.shell.backslash import COMMANDS
from f1.statements import split, tokens

_WORDS = """
ALL ALTER ANALYZE AND ANY AS ASC BEGIN BETWEEN BIGINT BOOL BY BYTES CASCADE CASE CAST CHECK COALESCE COLUMN
COMMIT CONFLICT COUNT CREATE CROSS DATABASE DATE DEFAULT DELETE DESC DISTINCT DO DOUBLE DROP ELSE END EXCEPT
EXISTS EXPLAIN FALSE FETCH FIRST FOREIGN FROM FULL GROUP HAVING IN INDEX INNER INSERT INT64 INTERLEAVE
INTERSECT INTO IS JOIN KEY LAST LEFT LIKE LIMIT LOCAL NOT NOTHING NULL NULLS NUMERIC OFFSET ON OPTIMISTIC OR
ORDER OUTER OVER PARENT PARTITION PESSIMISTIC PRIMARY PROTO REFERENCES RETURNING RIGHT ROLLBACK SELECT SET
SHOW SNAPSHOT STRING SUM TABLE TABLES THEN TIMESTAMP TRUE UNION UNIQUE UPDATE USING VALUES VIEW WHEN WHERE
WITH
"""
KEYWORDS = tuple(_WORDS.split())
_KEYWORD_SET = frozenset(KEYWORDS)


def is_complete(text: str) -> bool:
    """Tell whether Enter runs the input: a command, nothing, or statements that end with a semicolon."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    pieces, rest = split(text)
    return bool(pieces) and not rest.strip()


class SqlCompleter(Completer):
    """Completes keywords, tables, and columns: those of the tables in the input first."""

    def __init__(self, metadata: Callable[[], Metadata | None]) -> None:
        self._metadata = metadata

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may stand where the cursor is."""
        text = document.text_before_cursor
        if text.lstrip().startswith("\\") and " " not in text.strip():
            yield from (Completion(name, -len(text.strip())) for name in COMMANDS if name.startswith(text.strip()))
            return
        word = document.get_word_before_cursor()
        if word and not (word[0].isalpha() or word[0] == "_"):
            word = ""
        qualified = text[: len(text) - len(word)].endswith(".")
        if not word and not qualified:
            return
        for name, meta in self._candidates(document.text, qualified):
            if name.lower().startswith(word.lower()):
                yield Completion(_in_case(name, word) if meta == "keyword" else name, -len(word), display_meta=meta)

    def _candidates(self, text: str, qualified: bool) -> Iterable[tuple[str, str]]:
        metadata = self._metadata()
        tables = metadata.tables if metadata is not None else ()
        words = {token.text.lower() for token in tokens(text) if token.kind == "word"}
        named = [table for table in tables if table.name.lower() in words]
        seen: set[str] = set()
        for table in named or tables:
            for column in table.columns:
                if column.name not in seen and not column.hidden:
                    seen.add(column.name)
                    yield column.name, f"{table.name}, {column.type}"
        if not qualified:
            yield from ((table.name, "table") for table in tables)
            yield from ((name, "view") for name in (metadata.views if metadata is not None else ()))
            yield from ((name, "keyword") for name in KEYWORDS)


def _in_case(keyword: str, word: str) -> str:
    return keyword.lower() if word.islower() else keyword


class SqlLexer(Lexer):
    """Colours keywords, texts and comments."""

    _STYLES = {"string": "ansigreen", "open": "ansigreen", "comment": "ansibrightblack", "number": "ansicyan"}  # noqa: RUF012

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Return the coloured lines."""
        lines: list[StyleAndTextTuples] = [[]]
        for token in tokens(document.text):
            keyword = token.kind == "word" and token.text.upper() in _KEYWORD_SET
            style = "ansiblue bold" if keyword else self._STYLES.get(token.kind, "")
            for i, part in enumerate(token.text.split("\n")):
                if i:
                    lines.append([])
                lines[-1].append((style, part))
        return lambda number: lines[number] if number < len(lines) else []
