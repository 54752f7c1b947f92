"""The one map between F1Error and what travels: gRPC status with details, or fields inside a stream's message.

A call that fails as a whole carries a ``google.rpc.Status`` with an ``ErrorInfo`` in its trailing metadata, so that
the code, both answers (``retryable``, ``ambiguous``) and the details arrive exactly as raised, and tools that know
only gRPC still see a sensible status. An error that answers one request of a batched stream travels as the fields
of :class:`WireError`. Everything else that goes wrong on a server is INTERNAL to the client, without the traceback:
that stays in the server's log under the incident number that the client is told.
"""

import asyncio
import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.observe.logs import get_logger

P = ParamSpec("P")
R = TypeVar("R")

_log = get_logger(__name__)
_incidents = itertools.count(1)

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "f1db"
_RETRYABLE = "retryable"
_AMBIGUOUS = "ambiguous"
_DETAIL_PREFIX = "detail."

# Trailing metadata is a header of the transport, which refuses large ones: better a shortened error than none.
_MAX_MESSAGE_CHARS = 4096
_MAX_STATUS_BYTES = 12 * 1024

GRPC_STATUS: Mapping[Code, grpc.StatusCode] = {
    Code.ABORTED: grpc.StatusCode.ABORTED,
    Code.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.BAD_DATA_DIR: grpc.StatusCode.FAILED_PRECONDITION,
    Code.CANCELLED: grpc.StatusCode.CANCELLED,
    Code.CLOCK_SKEW: grpc.StatusCode.FAILED_PRECONDITION,
    Code.DATA_CORRUPTION: grpc.StatusCode.DATA_LOSS,
    Code.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Code.DISK_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.EXPIRED: grpc.StatusCode.FAILED_PRECONDITION,
    Code.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Code.FENCED: grpc.StatusCode.FAILED_PRECONDITION,
    Code.INTERNAL: grpc.StatusCode.INTERNAL,
    Code.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    Code.KEY_TOO_LONG: grpc.StatusCode.INVALID_ARGUMENT,
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.NOT_LEADER: grpc.StatusCode.UNAVAILABLE,
    Code.OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    Code.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Code.PORT_IN_USE: grpc.StatusCode.FAILED_PRECONDITION,
    Code.SNAPSHOT_TOO_OLD: grpc.StatusCode.OUT_OF_RANGE,
    Code.TRANSACTION_EXPIRED: grpc.StatusCode.ABORTED,
    Code.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Code.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Code.UNKNOWN_OUTCOME: grpc.StatusCode.UNKNOWN,
    Code.VERSION_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Code.WRONG_RANGE: grpc.StatusCode.UNAVAILABLE,
}
"""The status that tools which know only gRPC see for each code."""

# What a bare gRPC status (from the transport, or from a server that is not ours) means to us, and whether the call may
# have had an effect: the transport fails calls before, during and after the server worked on them.
_BARE_STATUS: Mapping[grpc.StatusCode, tuple[Code, bool]] = {
    grpc.StatusCode.ABORTED: (Code.ABORTED, False),
    grpc.StatusCode.ALREADY_EXISTS: (Code.ALREADY_EXISTS, False),
    grpc.StatusCode.CANCELLED: (Code.CANCELLED, True),
    grpc.StatusCode.DATA_LOSS: (Code.DATA_CORRUPTION, True),
    grpc.StatusCode.DEADLINE_EXCEEDED: (Code.DEADLINE_EXCEEDED, True),
    grpc.StatusCode.FAILED_PRECONDITION: (Code.FAILED_PRECONDITION, False),
    grpc.StatusCode.INTERNAL: (Code.INTERNAL, True),
    grpc.StatusCode.INVALID_ARGUMENT: (Code.INVALID_ARGUMENT, False),
    grpc.StatusCode.NOT_FOUND: (Code.NOT_FOUND, False),
    grpc.StatusCode.OUT_OF_RANGE: (Code.OUT_OF_RANGE, False),
    grpc.StatusCode.PERMISSION_DENIED: (Code.PERMISSION_DENIED, False),
    grpc.StatusCode.UNAUTHENTICATED: (Code.UNAUTHENTICATED, False),
    grpc.StatusCode.UNAVAILABLE: (Code.UNAVAILABLE, True),
    # The transport's own limit on a message's size; either direction, so the server may have done its work.
    grpc.StatusCode.RESOURCE_EXHAUSTED: (Code.OUT_OF_RANGE, True),
    # The server knows no such method: it is older or newer than the caller.
    grpc.StatusCode.UNIMPLEMENTED: (Code.VERSION_MISMATCH, False),
    grpc.StatusCode.UNKNOWN: (Code.INTERNAL, True),
}


class WireError(NamedTuple):
    """An error as the fields of a message inside a stream."""

    code: str
    message: str
    retryable: bool
    ambiguous: bool
    details: dict[str, str]


def error_to_wire(error: F1Error) -> WireError:
    """Return the fields that carry ``error``."""
    return WireError(error.code.value, error.message, error.retryable, error.ambiguous, dict(error.details))


def error_from_wire(
    code: str, message: str, retryable: bool, ambiguous: bool, details: Mapping[str, str] | None = None
) -> F1Error:
    """Return the error that the fields carry; a code that this version does not know is INTERNAL and named."""
    try:
        known = Code(code)
    except ValueError:
        known, message = Code.INTERNAL, f"{code}: {message}"
    return F1Error(known, message, retryable=retryable, ambiguous=ambiguous, details=details)


def error_from_exception(exception: BaseException) -> F1Error:
    """Return the error to tell a client about ``exception``.

    What is not an F1Error or a gRPC error is logged with its traceback under an incident number and becomes INTERNAL
    and ambiguous: where it broke off is not known.
    """
    match exception:
        case InvariantViolation():
            _log.error("invariant violated", exc=exception)
            return exception
        case F1Error():
            return exception
        case grpc.aio.AioRpcError():
            return error_from_rpc(exception)
        case asyncio.CancelledError():
            return F1Error(Code.CANCELLED, "the call was cancelled", ambiguous=True)
        case TimeoutError():
            return F1Error(Code.DEADLINE_EXCEEDED, "the time for the call ran out", ambiguous=True)
        case DecodeError():
            return F1Error(Code.INVALID_ARGUMENT, f"a message cannot be read: {exception}; is the sender one of ours?")
        case _:
            incident = next(_incidents)
            _log.error("unexpected exception", exc=exception, incident=incident)
            text = f"unexpected {type(exception).__name__} on the server; its log has it as incident {incident}"
            return F1Error(Code.INTERNAL, text, ambiguous=True, details={"incident": str(incident)})


def error_from_rpc(error: grpc.aio.AioRpcError) -> F1Error:
    """Return the F1Error that a failed gRPC call carries, or what its bare status means.

    A bare status of the transport is ambiguous; a caller that knows better (its request is idempotent, or never left)
    does not look at the flag.
    """
    attached = _attached(error)
    if attached is not None:
        return attached
    code, ambiguous = _BARE_STATUS.get(error.code(), (Code.INTERNAL, True))
    return F1Error(code, error.details() or f"gRPC status {error.code().name}", ambiguous=ambiguous)


def carries_error(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether our server raised this (True) or the transport or a foreign server did (False)."""
    return _attached(error) is not None


def _attached(error: grpc.aio.AioRpcError) -> F1Error | None:
    for key, value in cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ()):
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        info = error_details_pb2.ErrorInfo()
        try:
            status = status_pb2.Status.FromString(value)
            found = next((detail for detail in status.details if detail.Is(info.DESCRIPTOR)), None)
            if found is None or not found.Unpack(info) or info.domain != _DOMAIN:
                continue
        except DecodeError:
            continue  # not ours after all: the bare status tells what there is to tell
        details = {
            name.removeprefix(_DETAIL_PREFIX): text
            for name, text in sorted(info.metadata.items())
            if name.startswith(_DETAIL_PREFIX)
        }
        retryable, ambiguous = info.metadata[_RETRYABLE] == "true", info.metadata[_AMBIGUOUS] == "true"
        return error_from_wire(info.reason, status.message, retryable, ambiguous, details)
    return None


def trailing_metadata(error: F1Error) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata that carries ``error``; a huge message is cut and huge details are left out."""
    flags = {_RETRYABLE: str(error.retryable).lower(), _AMBIGUOUS: str(error.ambiguous).lower()}
    details = {_DETAIL_PREFIX + key: value for key, value in sorted(error.details.items())}
    encoded = _encode(error, flags | details)
    if len(encoded) > _MAX_STATUS_BYTES:
        encoded = _encode(error, flags | {f"{_DETAIL_PREFIX}truncated": "true"})
    return ((_DETAILS_KEY, encoded),)


def _encode(error: F1Error, metadata: dict[str, str]) -> bytes:
    info = error_details_pb2.ErrorInfo(reason=error.code.value, domain=_DOMAIN, metadata=metadata)
    packed = any_pb2.Any()
    packed.Pack(info)
    # The number and the text repeat the call's own status: tools refuse a Status that contradicts it.
    number = cast("tuple[int, str]", GRPC_STATUS[error.code].value)[0]
    status = status_pb2.Status(code=number, message=_short(error.message), details=[packed])
    return bytes(status.SerializeToString())


def _short(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE_CHARS else message[: _MAX_MESSAGE_CHARS - 1] + "…"


async def abort(context: Any, error: F1Error) -> NoReturn:
    """End the call of a servicer's ``context`` with ``error``. Raises what ``context.abort`` raises."""
    await context.abort(GRPC_STATUS[error.code], _short(error.message), trailing_metadata(error))
    raise error  # a context whose abort returns would otherwise let the handler go on


def maps_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a servicer's method, coroutine or async generator, so that its errors reach the client as F1Errors.

    The last positional argument is the servicer context, as gRPC passes it. Cancellation passes through.
    """
    if inspect.isasyncgenfunction(method):
        generator = cast(Callable[..., AsyncIterator[Any]], method)

        @functools.wraps(method)
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            try:
                async for item in generator(*args, **kwargs):
                    yield item
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except Exception as exception:
                await abort(args[-1], error_from_exception(exception))

        return cast(Callable[P, R], stream)

    coroutine = cast(Callable[..., Awaitable[Any]], method)

    @functools.wraps(method)
    async def single(*args: Any, **kwargs: Any) -> Any:
        try:
            return await coroutine(*args, **kwargs)
        except (grpc.aio.AbortError, asyncio.CancelledError):
            raise
        except Exception as exception:
            await abort(args[-1], error_from_exception(exception))

    return cast(Callable[P, R], single)
