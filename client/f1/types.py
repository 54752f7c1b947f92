"""DB-API 2.0's type objects and constructors."""

import datetime


class TypeObject:
    """Compares equal to the type codes (``description[i][1]``) of its family."""

    def __init__(self, name: str, codes: frozenset[str]) -> None:
        self._name = name
        self._codes = codes

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self is other
        return isinstance(other, str) and other.partition("(")[0].partition("<")[0] in self._codes

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"f1.{self._name}"


STRING = TypeObject("STRING", frozenset({"STRING", "VARCHAR"}))
BINARY = TypeObject("BINARY", frozenset({"BYTES", "PROTO", "BLOB"}))
NUMBER = TypeObject(
    "NUMBER",
    frozenset({"BOOL", "INT64", "DOUBLE", "NUMERIC", "DECIMAL", "BIGINT", "INTEGER", "HUGEINT", "FLOAT", "BOOLEAN"}),
)
DATETIME = TypeObject("DATETIME", frozenset({"DATE", "TIMESTAMP", "TIME", "INTERVAL"}))
ROWID = TypeObject("ROWID", frozenset())

Date = datetime.date
Time = datetime.time
Binary = bytes


def Timestamp(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime.datetime:
    """Return a moment in UTC."""
    return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)


def DateFromTicks(ticks: float) -> datetime.date:
    """Return the day, in UTC, of a number of seconds since the Unix epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> datetime.time:
    """Return the time of day, in UTC, of a number of seconds since the Unix epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """Return the moment, in UTC, of a number of seconds since the Unix epoch."""
    return datetime.datetime.fromtimestamp(ticks, tz=datetime.UTC)
