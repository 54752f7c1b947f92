"""One map between F1Error and what travels (STYLE: errors say what the caller may do)."""

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.rpc.status import (
    GRPC_STATUS,
    error_from_exception,
    error_from_rpc,
    error_from_wire,
    error_to_wire,
    maps_errors,
    trailing_metadata,
)
from tests.unit.rpc.echo import ClientBatch, Request, ServerBatch, connected, session_method, single_method


def facts(error: F1Error) -> tuple[Any, ...]:
    return error.code, error.message, error.retryable, error.ambiguous, dict(error.details)


async def over_the_wire(exception: Exception) -> grpc.aio.AioRpcError:
    """Raise ``exception`` in a servicer and return what the client's call raises."""

    async def single(request: Any, context: Any) -> Any:
        raise exception

    async with connected(single=single) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await single_method(channel)(Request())
        return caught.value


def test_every_code_makes_the_round_trip_exactly() -> None:
    async def scenario() -> None:
        current: list[F1Error] = []

        async def single(request: Any, context: Any) -> Any:
            raise current[-1]

        async with connected(single=single) as channel:
            call = single_method(channel)
            for code in Code:
                for retryable in (None, True, False):
                    for ambiguous in (False, True):
                        error = F1Error(
                            code,
                            f"Grüße: {code}\nund 100 %",
                            retryable=retryable,
                            ambiguous=ambiguous,
                            details={"leader": "span-b1", "retryable": "a detail of that name", "empty": ""},
                        )
                        current.append(error)
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await call(Request())
                        assert facts(error_from_rpc(caught.value)) == facts(error)
                        assert caught.value.code() is GRPC_STATUS[code]

    asyncio.run(scenario())


def test_map_covers_every_code_with_an_error_status() -> None:
    assert set(GRPC_STATUS) == set(Code)
    assert grpc.StatusCode.OK not in GRPC_STATUS.values()


def test_status_is_readable_by_tools_that_know_only_google_rpc() -> None:
    async def scenario() -> None:
        async def single(request: Any, context: Any) -> Any:
            raise F1Error(Code.NOT_LEADER, "ask b", details={"leader": "b"})

        async with connected(single=single) as channel:
            call = single_method(channel)(Request())
            with pytest.raises(grpc.aio.AioRpcError):
                await call
            status = await rpc_status.aio.from_call(call)  # type: ignore[attr-defined]
            info = error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info)
            assert (info.domain, info.reason, info.metadata["detail.leader"]) == ("f1db", "NOT_LEADER", "b")

    asyncio.run(scenario())


def test_unknown_exception_is_internal_without_its_text_and_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = error_from_rpc(asyncio.run(over_the_wire(KeyError("the customer's password"))))
    assert (error.code, error.retryable, error.ambiguous) == (Code.INTERNAL, False, True)
    assert "password" not in error.message and "KeyError" in error.message
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == 1
    assert str(logged[0].f1_fields["incident"]) == error.details["incident"]  # type: ignore[attr-defined]


def test_invariant_violation_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = error_from_rpc(asyncio.run(over_the_wire(InvariantViolation("two leaders in one ballot"))))
    assert (error.code, error.message) == (Code.INTERNAL, "two leaders in one ballot")
    assert any(record.exc_info for record in caplog.records)


def test_errors_of_a_streaming_method_reach_the_client_after_its_items() -> None:
    async def session(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for _ in requests:
            yield ServerBatch(version=1)
            raise F1Error(Code.SNAPSHOT_TOO_OLD, "read at 5 or later", details={"oldest": "5"})

    async def scenario() -> None:
        async with connected(session) as channel:  # type: ignore[arg-type]
            call = session_method(channel)()
            await call.write(ClientBatch())
            seen = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for batch in call:
                    seen.append(batch.version)
            assert seen == [1]
            error = error_from_rpc(caught.value)
            assert (error.code, dict(error.details)) == (Code.SNAPSHOT_TOO_OLD, {"oldest": "5"})

    asyncio.run(scenario())


def test_abort_by_the_method_itself_passes_through() -> None:
    async def single(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    async def scenario() -> F1Error:
        async with connected(single=single) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await single_method(channel)(Request())
            return error_from_rpc(caught.value)

    error = asyncio.run(scenario())
    assert (error.code, error.message, error.ambiguous) == (Code.NOT_FOUND, "no such thing", False)


def test_decorator_leaves_results_and_names_alone() -> None:
    @maps_errors
    async def lookup(request: str, context: object) -> str:
        """Find."""
        return request.upper()

    assert asyncio.run(lookup("a", None)) == "A"
    assert (lookup.__name__, lookup.__doc__) == ("lookup", "Find.")


def test_server_that_is_down_is_unavailable_and_ambiguous() -> None:
    async def scenario() -> F1Error:
        channel = grpc.aio.insecure_channel("127.0.0.1:1")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await single_method(channel)(Request())
        await channel.close(None)
        return error_from_rpc(caught.value)

    error = asyncio.run(scenario())
    assert (error.code, error.retryable, error.ambiguous) == (Code.UNAVAILABLE, True, True)


@pytest.mark.parametrize("status", [status for status in grpc.StatusCode if status is not grpc.StatusCode.OK])
def test_bare_status_has_a_meaning(status: grpc.StatusCode) -> None:
    metadata = grpc.aio.Metadata()
    error = error_from_rpc(grpc.aio.AioRpcError(status, metadata, metadata, None, None))
    assert status.name in error.message
    unsure = {"UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "DATA_LOSS", "RESOURCE_EXHAUSTED"}
    assert error.ambiguous == (status.name in unsure)


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xff\xff", error_details_pb2.ErrorInfo(reason="X").SerializeToString(), "text"]
)
def test_foreign_details_are_ignored(value: bytes | str) -> None:
    metadata = grpc.aio.Metadata(("grpc-status-details-bin", value))
    empty = grpc.aio.Metadata()
    error = error_from_rpc(grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, empty, metadata, "gone", None))
    assert facts(error) == (Code.NOT_FOUND, "gone", False, False, {})


def test_huge_error_is_cut_instead_of_lost() -> None:
    error = error_from_rpc(
        asyncio.run(over_the_wire(F1Error(Code.ABORTED, "ü" * 100_000, details={"key": "x" * 100_000})))
    )
    assert (error.code, error.retryable) == (Code.ABORTED, True)
    assert error.message.startswith("üüü") and error.message.endswith("…")
    assert error.details == {"truncated": "true"}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
errors = st.builds(
    F1Error,
    st.sampled_from(list(Code)),
    texts,
    retryable=st.none() | st.booleans(),
    ambiguous=st.booleans(),
    details=st.dictionaries(texts, texts, max_size=3),
)


@given(errors)
def test_fields_in_a_message_carry_everything(error: F1Error) -> None:
    assert facts(error_from_wire(*error_to_wire(error))) == facts(error)


@given(errors)
def test_trailing_metadata_carries_everything(error: F1Error) -> None:
    metadata = grpc.aio.Metadata(*trailing_metadata(error))
    received = error_from_rpc(grpc.aio.AioRpcError(GRPC_STATUS[error.code], metadata, metadata, "", ""))
    assert facts(received) == facts(error) == facts(pickle.loads(pickle.dumps(error)))


def test_code_of_a_later_version_is_internal_and_named() -> None:
    error = error_from_wire("TOO_MANY_MOONS", "three", True, True, {"moons": "3"})
    assert facts(error) == (Code.INTERNAL, "TOO_MANY_MOONS: three", True, True, {"moons": "3"})


def test_cancellation_and_timeouts_have_codes() -> None:
    assert error_from_exception(asyncio.CancelledError()).code is Code.CANCELLED
    assert error_from_exception(TimeoutError()).code is Code.DEADLINE_EXCEEDED
