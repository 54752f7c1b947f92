"""Places in the source text of DDL."""

from dataclasses import dataclass

from f1common.errors import Code, F1Error


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source text: lines and columns count from 1."""

    line: int = 0
    column: int = 0
    file: str = ""

    def error(self, code: Code, message: str) -> F1Error:
        """Return an error that points here, in its text and in its details."""
        if not self.line:
            return F1Error(code, message)
        place = f"{self.file}:{self.line}:{self.column}" if self.file else f"line {self.line}, column {self.column}"
        details = {"line": str(self.line), "column": str(self.column)}
        if self.file:
            details["file"] = self.file
        return F1Error(code, f"{message} ({place})", details=details)


NOWHERE = Position()
