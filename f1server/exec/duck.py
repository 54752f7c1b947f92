"""DuckDB as an evaluator: one database in memory, locked down, one connection for each query.

Nothing of the outside is in reach of a query: no files, no network, no extensions, no settings. ``docs/sql.md`` says
what each setting is for.
"""

import asyncio
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from f1common.errors import Code, F1Error
from f1server.plan.functions import MACROS

SETTINGS = (
    "python_enable_replacements = false",
    "integer_division = true",
    "ieee_floating_point_ops = false",
    "TimeZone = 'UTC'",
    "autoload_known_extensions = false",
    "autoinstall_known_extensions = false",
    "scalar_subquery_error_on_multiple_rows = true",
    "preserve_insertion_order = true",
    "arrow_large_buffer_size = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
"""What every connection has; the last one locks them."""


@dataclass(frozen=True, slots=True)
class DuckConfig:
    """Limits of all queries of a process together. ``memory_mb`` is megabytes; ``temp_dir``: where queries spill to."""

    memory_mb: int = 1024
    threads: int = 2
    temp_dir: str = ""
    batch_rows: int = 16_384
    spool_bytes: int = 64 << 20


class Duck:
    """One DuckDB database. ``executor`` runs what takes time; None: in place (the simulator)."""

    def __init__(self, config: DuckConfig | None = None, executor: Executor | None = None) -> None:
        self.config = config or DuckConfig()
        self.executor = executor
        settings: dict[str, Any] = {
            "threads": str(self.config.threads),
            "memory_limit": f"{self.config.memory_mb}MB",
            "temp_directory": self.config.temp_dir or os.path.join(tempfile.gettempdir(), f"f1-duckdb-{os.getpid()}"),
        }
        self._database: Any = duckdb.connect(":memory:", config=settings)
        self._lock = threading.Lock()
        self._functions: set[str] = set()
        for macro in MACROS:
            self._database.execute(f"CREATE MACRO {macro}")
        for setting in SETTINGS:
            self._database.execute(f"SET GLOBAL {setting}")

    def connection(self) -> "Connection":
        """Return a connection for one query. To be closed."""
        with self._lock:
            return Connection(self._database.cursor(), self)

    def function(self, name: str, argument: str, result: str, call: Callable[[Any], Any]) -> None:
        """Let all queries call a function over Arrow arrays; one of that name that is there already is this one."""
        with self._lock:
            if name not in self._functions:
                self._database.create_function(name, call, [argument], result, type="arrow", null_handling="special")
                self._functions.add(name)

    def close(self) -> None:
        """Close the database; queries that run are interrupted."""
        self._database.close()


class Connection:
    """One query's connection: its relations are seen by nobody else."""

    def __init__(self, connection: Any, duck: Duck) -> None:
        self._connection = connection
        self._duck = duck
        self._closed = False
        self.turn = asyncio.Lock()
        """Held by whoever works on the connection beside the event loop: it does one thing at a time."""

    def register(self, name: str, rows: Any) -> None:
        """Let a query read an Arrow table under a name, with the types that a query of ours gave it."""
        shown = _restored(rows.schema)
        if shown is None:
            self.run(lambda: self._connection.register(name, rows))
            return
        self.run(lambda: self._connection.register(f"{name}_", rows))
        self.run(lambda: self._connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {shown} FROM {name}_"))

    def view(self, name: str, source: str, columns: Sequence[tuple[str, str]]) -> None:
        """Let a query read some columns of a relation under other names: (there, here)."""
        shown = ", ".join(f"{_quoted(there)} AS {_quoted(here)}" for there, here in columns)
        self.run(lambda: self._connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {shown} FROM {source}"))

    def spool(self, name: str, rows: Any, create: bool) -> None:
        """Add rows to a temporary table, which DuckDB moves to disk when memory is short."""
        self.run(lambda: self._connection.register("f1_spooled", rows))
        head = f"CREATE TEMP TABLE {name} AS" if create else f"INSERT INTO {name}"
        shown = _restored(rows.schema) or "*"
        self.run(lambda: self._connection.execute(f"{head} SELECT {shown} FROM f1_spooled").fetchall())
        self._connection.unregister("f1_spooled")

    def require_query(self, sql: str) -> None:
        """Check that a text from elsewhere is one query, which changes nothing. Raises F1Error INVALID_ARGUMENT."""
        found = self.run(lambda: [statement.type for statement in self._connection.extract_statements(sql)])
        if found != [duckdb.StatementType.SELECT]:
            raise F1Error(Code.INVALID_ARGUMENT, "the text of a part is not one query")

    def query(self, sql: str, bound: Mapping[str, object]) -> "tuple[Any, Iterator[Any]]":
        """Run a query and return its Arrow schema and the batches of its result. Raises F1Error."""

        def start() -> Any:
            relation = self._connection.sql(sql, params=dict(bound)) if bound else self._connection.sql(sql)
            return [str(kind) for kind in relation.types], relation.to_arrow_reader(self._duck.config.batch_rows)

        kinds, reader = self.run(start)
        schema = _noted(reader.schema, kinds)
        return schema, self._batches(reader, None if schema is reader.schema else schema)

    def _batches(self, reader: Any, schema: Any) -> Iterator[Any]:
        while True:
            batch = self.run(lambda: next(reader, None))
            if batch is None:
                return
            yield batch if schema is None else pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def table(self, sql: str, bound: Mapping[str, object] | None = None) -> Any:
        """Run a query and return its whole result as an Arrow table. Raises F1Error."""
        schema, batches = self.query(sql, bound or {})
        return pa.Table.from_batches(list(batches), schema=schema)

    def run(self, work: Callable[[], Any]) -> Any:
        """Do something with DuckDB and turn its errors into ours."""
        try:
            return work()
        except F1Error:
            raise
        except StopIteration:
            return None
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            raise error_of(error) from error

    def interrupt(self) -> None:
        """Stop the query that runs, from any thread."""
        try:
            self._connection.interrupt()
        except duckdb.ConnectionException:
            pass  # it is closed: nothing runs

    def close(self) -> None:
        """Give everything back."""
        if self._closed:
            return
        self._closed = True
        self._connection.close()


TYPE_NOTE = b"duckdb"
"""Key of a field's metadata: the type that its values had."""
_CHANGED = frozenset({"HUGEINT", "UHUGEINT", "UUID", "JSON", "BIT", "TIME WITH TIME ZONE", "TIMESTAMP_S"})
"""Types that Arrow carries as others: a HUGEINT that comes back as DECIMAL(38, 0) divides differently."""


def _noted(schema: Any, kinds: Sequence[str]) -> Any:
    """Return an Arrow schema that says which types of DuckDB its columns had, where that is lost."""
    if not _CHANGED.intersection(kinds):
        return schema
    fields = [
        field.with_metadata({TYPE_NOTE: kind}) if kind in _CHANGED else field
        for field, kind in zip(schema, kinds, strict=True)
    ]
    return pa.schema(fields)


def _restored(schema: Any) -> str | None:
    """Return a select list that gives the columns of an Arrow schema their types back; None: they have them."""
    kinds = [(field.metadata or {}).get(TYPE_NOTE, b"").decode() for field in schema]
    if not any(kinds):
        return None
    names = [_quoted(name) for name in schema.names]
    return ", ".join(f"CAST({n} AS {k}) AS {n}" if k in _CHANGED else n for n, k in zip(names, kinds, strict=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (duckdb.OutOfMemoryException, Code.OVERLOADED),
    (duckdb.InterruptException, Code.CANCELLED),
    (duckdb.OutOfRangeException, Code.OUT_OF_RANGE),
    (duckdb.ConversionException, Code.INVALID_ARGUMENT),
    (duckdb.InternalException, Code.INTERNAL),
)
_OWN_ERROR = re.compile(r"\bF1Error: ([A-Z_]+): (.*)", re.DOTALL)


def error_of(error: Exception) -> F1Error:
    """Return our error for one of DuckDB's or Arrow's."""
    text = str(error)
    own = _OWN_ERROR.search(text)
    if own and own[1] in Code.__members__:
        return F1Error(Code(own[1]), own[2].split("\n\n")[0].strip())
    unknown = re.search(r"Function with name \"?(\w+)\"? does not exist", text)
    if unknown:
        return F1Error(
            Code.NOT_FOUND, f"there is no function {unknown[1].removeprefix('f1_')}", details={"function": unknown[1]}
        )
    message = _clean(text)
    if "ivision by zero" in text:
        return F1Error(Code.INVALID_ARGUMENT, "division by zero")
    if "Out of Memory" in text or isinstance(error, duckdb.OutOfMemoryException):
        return F1Error(Code.OVERLOADED, f"the query needs more memory than it may use: {message}", retryable=False)
    if "INTERRUPT" in text.upper() and "Interrupted" in text:
        return F1Error(Code.CANCELLED, "the query was cancelled")
    if "out of range" in text or "Overflow" in text or "overflow" in text:
        return F1Error(Code.OUT_OF_RANGE, message)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return F1Error(code, message)
    return F1Error(Code.INVALID_ARGUMENT, message)


def _clean(text: str) -> str:
    """Return the part of a message of DuckDB that says what is wrong, in our names."""
    first = text.split("\n\nLINE ")[0].split("\n\nUse ")[0].split("\nCandidate functions")[0].split("\n\tCandidate")[0]
    for _ in range(2):  # an error inside an error
        first = re.sub(r"^(\w+ ){0,4}(Error|Exception): ", "", first)
    first = re.sub(r'"?f1_t\d+"?\.?', "", first)
    first = re.sub(r"\bf1_(\w+)\(", r"\1(", first).split(" Use TRY(...)")[0].split(' Use "SET')[0]
    first = first.split(". You might want to add")[0].split(" You might need to add")[0]
    text = " ".join(first.split())
    return text[:1].lower() + text[1:400] if text[:2] != text[:2].upper() else text[:400]
