"""Structured logs: one event with fields on a line, for people or as JSON, never with a secret in it.

The standard library's logging is underneath, so that what libraries log arrives in the same place and form. Modules
call :func:`get_logger` once and pass facts as keyword arguments, not inside the text::

    log = get_logger(__name__)
    log.info("leader elected", group=3, round=7)

Each line names the node and zone. A process sets them in :func:`configure`; where several servers share a process
(tests, the simulator), each runs inside :func:`node_scope`.
"""

import json
import logging
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Literal, TextIO

from f1common.errors import Code, F1Error

Clock = Callable[[], int]
"""Returns microseconds since the Unix epoch."""

_REDACTED = "***"
_SECRET_KEY = re.compile(r"password|passwd|secret|token|credential|private_?key", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"""(?P<key>(?:password|passwd|secret|token)["']?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s,;&}\])]+)""",
    re.IGNORECASE,
)
_HANDLER_NAME = "f1"
_FIELDS = "f1_fields"
_SUPPRESSED = "f1_suppressed"
# Bound on the memory of the repeat limit: more distinct events than any code of ours has.
_MAX_TRACKED_EVENTS = 1000
# A log is read by people: nobody needs the whole of a large value or request in it.
_MAX_TEXT_CHARS = 4096

_node: ContextVar[tuple[str, str] | None] = ContextVar("f1_log_node", default=None)


class Logger:
    """A logger whose methods take an event and its fields. :meth:`bind` gives one with fields of its own."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: Mapping[str, object]) -> None:
        self._logger = logger
        self._bound = bound

    def bind(self, **fields: object) -> "Logger":
        """Return a logger that adds ``fields`` to each event."""
        return Logger(self._logger, {**self._bound, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """Log what only someone who hunts a defect wants to see."""
        self._log(logging.DEBUG, event, fields, None)

    def info(self, event: str, /, **fields: object) -> None:
        """Log a change of state that an operator may want to see."""
        self._log(logging.INFO, event, fields, None)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what went wrong and was handled."""
        self._log(logging.WARNING, event, fields, None)

    def error(self, event: str, /, *, exc: BaseException | None = None, **fields: object) -> None:
        """Log what needs an operator, with the traceback of ``exc``."""
        self._log(logging.ERROR, event, fields, exc)

    def _log(self, level: int, event: str, fields: Mapping[str, object], exc: BaseException | None) -> None:
        if self._logger.isEnabledFor(level):
            merged = {**self._bound, **fields}
            self._logger.log(level, event, exc_info=exc, extra={_FIELDS: merged}, stacklevel=3)


def get_logger(name: str, **fields: object) -> Logger:
    """Return the structured logger of module ``name``."""
    return Logger(logging.getLogger(name), fields)


@contextmanager
def node_scope(name: str, zone: str) -> Iterator[None]:
    """Within it, and in tasks begun within it, log lines carry this node and zone."""
    token = _node.set((name, zone))
    try:
        yield
    finally:
        _node.reset(token)


def redact(key: str, value: object) -> object:
    """Return ``value``, or stars in place of it or of parts of it if their key names a secret."""
    if _SECRET_KEY.search(key):
        return _REDACTED
    if isinstance(value, Mapping):
        return {str(inner): redact(str(inner), nested) for inner, nested in value.items()}
    match value:
        case list() | tuple():
            return [redact("", nested) for nested in value]
        case str():
            return redact_text(_cut(value))
        case bytes():
            return _cut(value.hex())
        case float() if not math.isfinite(value):
            return str(value)  # JSON has no such numbers
        case _:
            return value


def _cut(text: str) -> str:
    if len(text) <= _MAX_TEXT_CHARS:
        return text
    return f"{text[:_MAX_TEXT_CHARS]}… ({len(text)} characters)"


def redact_text(text: str) -> str:
    """Return ``text`` with stars after ``password=``, ``secret:`` and their like."""
    return _SECRET_TEXT.sub(lambda match: match["key"] + _REDACTED, text)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How one process logs. The same event is written at most ``repeats`` times in ``repeat_window_s`` seconds."""

    node: str = "-"
    zone: str = "-"
    level: str = "info"
    form: Literal["text", "json"] = "text"
    repeats: int = 20
    repeat_window_s: int = 10


class RepeatLimit(logging.Filter):
    """Lets an event through ``repeats`` times in a window, then counts; the next one let through tells how many.

    Events are the same if logger, level and text before formatting are: one per place in the code.
    """

    def __init__(self, repeats: int, window_us: int, clock: Clock | None) -> None:
        super().__init__()
        self._repeats = repeats
        self._window_us = window_us
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether ``record`` is written."""
        now = _time_us(record, self._clock)
        key = (record.name, record.levelno, str(record.msg))
        began, count = self._seen.get(key, (now, 0))
        # A clock that was set back opens a new window too.
        if not began <= now < began + self._window_us:
            if count > self._repeats:
                setattr(record, _SUPPRESSED, count - self._repeats)
            began, count = now, 0
        if key not in self._seen and len(self._seen) >= _MAX_TRACKED_EVENTS:
            self._seen.clear()
        self._seen[key] = (began, count + 1)
        return count < self._repeats


@dataclass(frozen=True, slots=True)
class _Line:
    """What one line says."""

    time: str
    level: str
    node: str
    zone: str
    logger: str
    event: str
    fields: Mapping[str, object]
    traceback: str | None


class _Formatter(logging.Formatter, ABC):
    def __init__(self, options: LogOptions, clock: Clock | None) -> None:
        super().__init__()
        self._options = options
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        return self._render(self._line(record))

    def _line(self, record: logging.LogRecord) -> _Line:
        node, zone = _node.get() or (self._options.node, self._options.zone)
        fields = {key: redact(key, value) for key, value in getattr(record, _FIELDS, {}).items()}
        suppressed = getattr(record, _SUPPRESSED, 0)
        if suppressed:
            fields["suppressed"] = suppressed
        seconds, micros = divmod(_time_us(record, self._clock), 1_000_000)
        time = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
        traceback = redact_text(self.formatException(record.exc_info)) if record.exc_info else None
        event = redact_text(_cut(record.getMessage()))
        return _Line(time, record.levelname.lower(), node, zone, record.name, event, fields, traceback)

    @abstractmethod
    def _render(self, line: _Line) -> str:
        """Return the text of a line."""


class _Text(_Formatter):
    def _render(self, line: _Line) -> str:
        fields = "".join(f" {key}={_plain(value)}" for key, value in line.fields.items())
        # One event is one line, whatever it quotes: nobody can forge a line by sending a newline.
        event = line.event.replace("\n", "\\n").replace("\r", "\\r")
        text = f"{line.time} {line.level:<7} {line.node}/{line.zone} {line.logger}: {event}{fields}"
        if line.traceback:
            text += "".join(f"\n    {row}" for row in line.traceback.splitlines())
        return text


class _Json(_Formatter):
    def _render(self, line: _Line) -> str:
        record: dict[str, Any] = {
            "time": line.time,
            "level": line.level,
            "node": line.node,
            "zone": line.zone,
            "logger": line.logger,
            "event": line.event,
        }
        if line.fields:
            record["fields"] = dict(line.fields)
        if line.traceback:
            record["traceback"] = line.traceback
        return json.dumps(record, default=_json_default, ensure_ascii=False)


def _json_default(value: object) -> str:
    return redact_text(_cut(str(value)))


def _plain(value: object) -> str:
    match value:
        case float():
            return f"{value:g}"
        case dict() | list():
            return json.dumps(value, default=_json_default, ensure_ascii=False)
        case _:
            text = value if isinstance(value, str) else redact_text(_cut(str(value)))
            bare = text and text.isprintable() and not set(text) & set(" ='\"")
            return text if bare else repr(text)


def _time_us(record: logging.LogRecord, clock: Clock | None) -> int:
    return clock() if clock is not None else int(record.created * 1_000_000)


_LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def make_handler(options: LogOptions, *, stream: TextIO, clock: Clock | None = None) -> logging.Handler:
    """Return a handler that writes to ``stream``; ``clock`` replaces the system's in the lines (virtual time)."""
    return _prepare(logging.StreamHandler(stream), options, clock)


def _prepare(handler: logging.Handler, options: LogOptions, clock: Clock | None) -> logging.Handler:
    handler.setFormatter(_Json(options, clock) if options.form == "json" else _Text(options, clock))
    if options.repeats:
        handler.addFilter(RepeatLimit(options.repeats, options.repeat_window_s * 1_000_000, clock))
    return handler


def configure(
    options: LogOptions, *, path: Path | None = None, stream: TextIO | None = None, clock: Clock | None = None
) -> logging.Handler:
    """Send everything this process logs to ``path`` (appended), to ``stream``, or to stderr; return the handler.

    Replaces what an earlier call set up. Raises F1Error INVALID_ARGUMENT for an unknown level or form, or a file that
    cannot be opened.
    """
    if options.level not in _LEVELS:
        raise F1Error(Code.INVALID_ARGUMENT, f"a log level is one of {', '.join(_LEVELS)}, not {options.level!r}")
    if options.form not in ("text", "json"):
        raise F1Error(Code.INVALID_ARGUMENT, f"a log form is 'text' or 'json', not {options.form!r}")
    if path is None:
        handler = make_handler(options, stream=stream if stream is not None else sys.stderr, clock=clock)
    else:
        try:
            # Opens the file again after a log rotation moved it.
            handler = _prepare(WatchedFileHandler(path, encoding="utf-8"), options, clock)
        except OSError as error:
            raise F1Error(Code.INVALID_ARGUMENT, f"cannot write the log {path}: {error.strerror}") from error
    handler.set_name(_HANDLER_NAME)
    root = logging.getLogger()
    unconfigure()
    root.addHandler(handler)
    root.setLevel(_LEVELS[options.level])
    return handler


def unconfigure() -> None:
    """Undo :func:`configure`."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if each.get_name() == _HANDLER_NAME]:
        root.removeHandler(handler)
        handler.close()
