"""Requests with answers over one stream (DESIGN section 3, rule 3): sharing, breaks, time-outs, bounds, drain."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from f1common.errors import Code, F1Error, InvariantViolation
from f1common.rpc.batches import StreamLimits
from f1common.rpc.streams import RequestStream, serve_requests
from tests.unit.rpc.echo import (
    Request,
    Response,
    ServerBatch,
    connected,
    echo,
    items_of,
    new_channels,
    pack_requests,
    pack_responses,
    request_stream,
    session_method,
    start_server,
    until,
)

pytestmark = pytest.mark.usefixtures("transports")

Reply = Callable[[Any], None]


class Server:
    """A servicer whose answers the test gives, and that counts what it reads."""

    def __init__(self, handle: Callable[[Any, Reply], None] | None = None, **options: Any) -> None:
        self.handle = handle if handle is not None else self.keep
        self.options = options
        self.batch_sizes: list[int] = []
        self.replies_sent: list[int] = []
        self.waiting: list[tuple[Any, Reply]] = []
        self.ended = 0

    def keep(self, request: Any, reply: Reply) -> None:
        self.waiting.append((request, reply))

    def unpack(self, batch: Any) -> Any:
        self.batch_sizes.append(len(batch.items))
        return batch.items

    def pack(self, responses: list[Any]) -> Any:
        self.replies_sent.append(len(responses))
        return pack_responses(responses)

    def answer_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for request, reply in waiting:
            reply(echo(request))

    async def session(self, _: Any, context: Any) -> None:
        try:
            await serve_requests(context, self.unpack, self.pack, lambda *args: self.handle(*args), **self.options)
        finally:
            self.ended += 1


def at_once(request: Any, reply: Reply) -> None:
    reply(echo(request))


async def outcome(call: Any) -> F1Error:
    with pytest.raises(F1Error) as caught:
        await call
    return caught.value


def test_64_concurrent_callers_share_messages() -> None:
    async def scenario() -> None:
        server = Server(at_once)
        async with connected(server.session) as channel:
            stream = request_stream(channel)

            async def caller(number: int) -> None:
                for turn in range(10):
                    text = f"{number}.{turn}"
                    assert (await stream.call(Request(text=text))).text == text

            await asyncio.gather(*(caller(number) for number in range(64)))
            assert stream.in_flight == 0
            await stream.close()
        requests = [size for size in server.batch_sizes if size]
        assert sum(requests) == 640
        assert len(requests) <= 160, "messages carry what is queued, not one request each"
        assert len(server.replies_sent) <= 160

    asyncio.run(scenario())


def test_one_call_after_the_other_waits_for_nobody() -> None:
    async def scenario() -> None:
        server = Server(at_once)
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            for number in range(5):
                assert (await stream.call(Request(text=str(number)))).text == str(number)
            await stream.close()
        assert server.batch_sizes == [0, 1, 1, 1, 1, 1], "the hello, then each request alone"

    asyncio.run(scenario())


def test_answers_may_overtake_one_another() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            calls = [asyncio.create_task(stream.call(Request(text=str(number)))) for number in range(8)]
            await until(lambda: len(server.waiting) == 8)
            for request, reply in reversed(server.waiting):
                reply(echo(request))
            assert [response.text for response in await asyncio.gather(*calls)] == [str(n) for n in range(8)]
            await stream.close()

    asyncio.run(scenario())


def test_break_in_mid_flight_is_ambiguous_for_what_was_handed_over_only() -> None:
    async def scenario() -> None:
        first = Server()
        server, port = await start_server(first.session)
        channels = new_channels()
        stream = request_stream(channels.get(f"127.0.0.1:{port}"))
        handed = [asyncio.create_task(stream.call(Request(text="handed"))) for _ in range(3)]
        await until(lambda: len(first.waiting) == 3)
        await server.stop(None)
        for call in handed:
            error = await outcome(call)
            assert (error.code, error.retryable, error.ambiguous) == (Code.UNAVAILABLE, True, True)
        assert stream.in_flight == 0

        # Nobody listens: the hello does not go through, so nothing was handed over.
        error = await outcome(stream.call(Request(text="nobody")))
        assert (error.code, error.retryable, error.ambiguous) == (Code.UNAVAILABLE, True, False)

        second = Server(at_once)
        server, _ = await start_server(second.session, port=port)

        async def retried() -> Any:
            while True:
                try:
                    return await stream.call(Request(text="again"))
                except F1Error as error:
                    assert error.code is Code.UNAVAILABLE and not error.ambiguous

        assert (await retried()).text == "again"
        await stream.close()
        await channels.close()
        await server.stop(None)

    asyncio.run(scenario())


def test_answers_for_a_client_that_is_gone_are_dropped() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            call = asyncio.create_task(stream.call(Request(text="x")))
            await until(lambda: len(server.waiting) == 1)
            await stream.close()
            error = await outcome(call)
            assert (error.code, error.ambiguous) == (Code.CANCELLED, True)
            await until(lambda: server.ended == 1)
            server.answer_all()
            assert server.replies_sent == [0], "the hello only"

    asyncio.run(scenario())


def test_what_a_draining_server_did_not_read_was_certainly_not_done() -> None:
    async def scenario() -> None:
        draining = asyncio.Event()
        server = Server(max_in_flight=1, draining=draining)
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            read = asyncio.create_task(stream.call(Request(text="read")))
            await until(lambda: len(server.waiting) == 1)
            unread = asyncio.create_task(stream.call(Request(text="unread")))
            await until(lambda: stream.in_flight == 2 and stream.queued == 0)
            draining.set()
            for _ in range(10):
                await asyncio.sleep(0)  # the session takes notice
            server.answer_all()
            assert (await read).text == "read"
            error = await outcome(unread)
            assert (error.code, error.retryable, error.ambiguous) == (Code.UNAVAILABLE, True, False)
            assert server.waiting == []
            await stream.close()

    asyncio.run(scenario())


def test_timeout_is_ambiguous_once_handed_over_and_the_late_answer_is_dropped() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            # The stream stands before the time begins to count, so that it suffices for the message on any machine.
            first = asyncio.create_task(stream.call(Request(text="first"), timeout_s=30.0))
            await until(lambda: len(server.waiting) == 1)
            server.answer_all()
            await first
            error = await outcome(stream.call(Request(text="late"), timeout_s=0.5))
            assert (error.code, error.ambiguous, error.retryable) == (Code.DEADLINE_EXCEEDED, True, False)
            await until(lambda: len(server.waiting) == 1)
            server.answer_all()
            server.handle = at_once
            assert (await stream.call(Request(text="next"))).text == "next"
            assert stream.in_flight == 0
            await stream.close()

    asyncio.run(scenario())


class StuckCall:
    """A call whose transport never takes a message."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.written: list[Any] = []

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        await self.over
        raise StopAsyncIteration

    async def write(self, message: Any, /) -> None:
        self.written.append(message)
        await self.over

    def cancel(self) -> bool:
        return True

    async def code(self) -> Any:
        await self.over

    async def details(self) -> str:
        return ""


def test_timeout_before_the_hand_over_is_not_ambiguous_and_frees_the_queue() -> None:
    async def scenario() -> None:
        call = StuckCall()
        stream: RequestStream[Any, Any] = RequestStream(
            lambda: call, pack_requests, items_of, rng=random.Random(1), limits=StreamLimits(max_in_flight=2)
        )
        for _ in range(5):  # more than max_in_flight: what timed out takes no room
            error = await outcome(stream.call(Request(text="x"), timeout_s=0.001))
            assert (error.code, error.ambiguous) == (Code.DEADLINE_EXCEEDED, False)
        assert (stream.in_flight, stream.queued) == (0, 0)
        assert [len(message.items) for message in call.written] == [0], "only the hello was written"
        await stream.close()

    asyncio.run(scenario())


def test_request_whose_time_runs_out_in_the_turn_of_its_hand_over_is_not_sent() -> None:
    async def scenario() -> None:
        stream: RequestStream[Any, Any] = RequestStream(StuckCall, pack_requests, items_of, rng=random.Random(1))
        call = asyncio.create_task(stream.call(Request(text="x")))
        await until(lambda: stream.queued == 1)
        # Timer and writer become ready in one turn of the loop, the timer first; the caller has not run again yet.
        stream._expire(stream._pending[1])
        assert stream._take() == []
        error = await outcome(call)
        assert (error.code, error.ambiguous) == (Code.DEADLINE_EXCEEDED, False)
        await stream.close()

    asyncio.run(scenario())


def test_cancelled_caller_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            call = asyncio.create_task(stream.call(Request(text="x")))
            await until(lambda: len(server.waiting) == 1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert stream.in_flight == 0
            server.answer_all()
            server.handle = at_once
            assert (await stream.call(Request(text="y"))).text == "y"
            await stream.close()

    asyncio.run(scenario())


def test_in_flight_limit_answers_overloaded() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel, StreamLimits(max_in_flight=3))
            calls = [asyncio.create_task(stream.call(Request())) for _ in range(3)]
            await until(lambda: len(server.waiting) == 3)
            error = await outcome(stream.call(Request()))
            assert (error.code, error.retryable, error.ambiguous) == (Code.OVERLOADED, True, False)
            server.answer_all()
            await asyncio.gather(*calls)
            await stream.close()

    asyncio.run(scenario())


def test_batches_keep_to_their_bounds() -> None:
    async def scenario() -> None:
        server = Server(at_once)
        async with connected(server.session) as channel:
            stream = request_stream(channel, StreamLimits(max_batch_messages=4, max_batch_bytes=1000))
            await asyncio.gather(*(stream.call(Request(body=bytes(10))) for _ in range(10)))
            assert server.batch_sizes == [0, 4, 4, 2]
            server.batch_sizes.clear()
            await asyncio.gather(*(stream.call(Request(body=bytes(size))) for size in (400, 400, 400, 2000, 10)))
            assert server.batch_sizes == [2, 1, 1, 1], "one message alone may exceed the bound of a batch"
            await stream.close()

    asyncio.run(scenario())


def test_request_larger_than_a_message_harms_nobody_else() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel, StreamLimits(max_batch_bytes=100, max_message_bytes=1000))
            other = asyncio.create_task(stream.call(Request(text="other")))
            await until(lambda: len(server.waiting) == 1)
            error = await outcome(stream.call(Request(body=bytes(1001))))
            assert (error.code, error.retryable, error.ambiguous) == (Code.OUT_OF_RANGE, False, False)
            server.answer_all()
            assert (await other).text == "other"
            assert stream.in_flight == 0
            await stream.close()

    asyncio.run(scenario())


def test_response_larger_than_a_message_fails_its_request_alone() -> None:
    def fail(request: Any, error: F1Error) -> Any:
        return Response(id=request.id, error=error.code.value)

    async def scenario() -> None:
        def handle(request: Any, reply: Reply) -> None:
            reply(Response(id=request.id, body=bytes(2000 if request.text == "large" else 10)))

        server = Server(handle, fail=fail, limits=StreamLimits(max_batch_bytes=100, max_message_bytes=1000))
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            large, small = await asyncio.gather(stream.call(Request(text="large")), stream.call(Request(text="small")))
            assert (large.error, small.error, len(small.body)) == ("OUT_OF_RANGE", "", 10)
            await stream.close()

    asyncio.run(scenario())


def test_server_stops_reading_at_its_limit_and_goes_on_as_it_answers() -> None:
    async def scenario() -> None:
        server = Server(max_in_flight=10)
        async with connected(server.session) as channel:
            stream = request_stream(channel, StreamLimits(max_batch_messages=5))
            calls = [asyncio.create_task(stream.call(Request(text=str(number)))) for number in range(100)]
            await until(lambda: len(server.waiting) == 10)
            await asyncio.sleep(0.05)  # time to read more, if it would
            assert sum(server.batch_sizes) == 10
            request, reply = server.waiting.pop(0)
            reply(echo(request))
            await until(lambda: sum(server.batch_sizes) == 15)
            await asyncio.sleep(0.02)
            assert sum(server.batch_sizes) == 15, "one free place lets one batch in"
            server.answer_all()
            server.handle = at_once
            while not all(call.done() for call in calls):
                server.answer_all()
                await asyncio.sleep(0.001)
            assert [(await call).text for call in calls] == [str(number) for number in range(100)]
            await stream.close()

    asyncio.run(scenario())


def test_slow_consumer_holds_the_writer_and_the_queue_stays_bounded() -> None:
    async def scenario() -> None:
        server = Server(max_in_flight=1)
        async with connected(server.session) as channel:
            limits = StreamLimits(max_in_flight=64, max_batch_messages=4)
            stream = request_stream(channel, limits)
            body = bytes(1 << 20)
            calls = [asyncio.create_task(stream.call(Request(body=body))) for _ in range(64)]
            await until(lambda: len(server.waiting) >= 1)
            assert (await outcome(stream.call(Request()))).code is Code.OVERLOADED
            await asyncio.sleep(0.05)
            assert sum(server.batch_sizes) <= 4
            while not all(call.done() for call in calls):
                server.answer_all()
                await asyncio.sleep(0.001)
            await asyncio.gather(*calls)
            await stream.close()

    asyncio.run(scenario())


def test_drain_answers_what_was_read_and_ends_the_stream() -> None:
    async def scenario() -> None:
        draining = asyncio.Event()
        server = Server(draining=draining)
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            calls = [asyncio.create_task(stream.call(Request(text=str(number)))) for number in range(3)]
            await until(lambda: len(server.waiting) == 3)
            draining.set()
            await asyncio.sleep(0.02)
            assert server.ended == 0, "answers are owed"
            server.answer_all()
            assert [response.text for response in await asyncio.gather(*calls)] == ["0", "1", "2"]
            await until(lambda: server.ended == 1)
            await stream.close()

    asyncio.run(scenario())


def test_half_close_of_the_client_is_answered_to_the_end() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            call = session_method(channel)()
            await call.write(pack_requests([Request(id=1, text="a"), Request(id=2, text="b")]))
            await call.done_writing()
            await until(lambda: len(server.waiting) == 2)
            server.answer_all()
            texts = [response.text async for batch in call for response in batch.items]
            assert texts == ["a", "b"]
            assert server.ended == 1

    asyncio.run(scenario())


def test_error_that_ends_the_stream_reaches_every_caller() -> None:
    async def scenario() -> None:
        async def session(_: Any, context: Any) -> None:
            await context.read()
            raise F1Error(Code.VERSION_MISMATCH, "speak version 2", details={"ours": "2"})

        async with connected(session) as channel:
            stream = request_stream(channel)
            errors = await asyncio.gather(*(outcome(stream.call(Request())) for _ in range(3)))
            for error in errors:
                assert (error.code, error.message) == (Code.VERSION_MISMATCH, "speak version 2")
                assert (error.retryable, error.ambiguous) == (False, False)
                assert error.details == {"ours": "2"}
            assert len({id(error) for error in errors}) == 3
            await stream.close()

    asyncio.run(scenario())


def test_method_that_the_server_lacks_is_a_version_mismatch() -> None:
    async def scenario() -> None:
        async with connected() as channel:
            stream = request_stream(channel)
            # grpc.aio loses the status if the hello is written just as it arrives; that error is retryable.
            while (error := await outcome(stream.call(Request()))).code is Code.UNAVAILABLE:
                assert not error.ambiguous
            assert (error.code, error.ambiguous) == (Code.VERSION_MISMATCH, False)
            await stream.close()

    asyncio.run(scenario())


def test_exception_of_the_handler_answers_its_request_alone_if_errors_fit_into_responses() -> None:
    def fail(request: Any, error: F1Error) -> Any:
        return Response(id=request.id, error=str(error.code))

    def handle(request: Any, reply: Reply) -> None:
        if request.text == "typed":
            raise F1Error(Code.WRONG_RANGE, "elsewhere")
        if request.text == "bug":
            raise ZeroDivisionError
        reply(echo(request))

    async def scenario() -> None:
        server = Server(handle, fail=fail)
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            calls = [stream.call(Request(text=text)) for text in ("fine", "typed", "bug")]
            errors = [response.error for response in await asyncio.gather(*calls)]
            assert errors == ["", "WRONG_RANGE", "INTERNAL"]
            await stream.close()

    asyncio.run(scenario())


def test_exception_of_the_handler_ends_the_stream_otherwise() -> None:
    async def scenario() -> None:
        def handle(request: Any, reply: Reply) -> None:
            raise ZeroDivisionError("secret of the server")

        server = Server(handle)
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            error = await outcome(stream.call(Request()))
            assert error.code is Code.INTERNAL and error.ambiguous
            assert "secret" not in error.message
            await stream.close()

    asyncio.run(scenario())


def test_second_answer_to_a_request_is_a_defect() -> None:
    async def scenario() -> None:
        server = Server()
        async with connected(server.session) as channel:
            stream = request_stream(channel)
            call = asyncio.create_task(stream.call(Request()))
            await until(lambda: len(server.waiting) == 1)
            request, reply = server.waiting[0]
            reply(echo(request))
            with pytest.raises(InvariantViolation):
                reply(echo(request))
            await call
            await stream.close()

    asyncio.run(scenario())


def test_closed_stream_refuses_calls_without_ambiguity() -> None:
    async def scenario() -> None:
        async with connected(Server(at_once).session) as channel:
            stream = request_stream(channel)
            await stream.call(Request())
            await stream.close()
            await stream.close()
            error = await outcome(stream.call(Request()))
            assert (error.code, error.ambiguous) == (Code.CANCELLED, False)

    asyncio.run(scenario())


def test_response_that_cannot_be_read_breaks_the_stream_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def session(_: Any, context: Any) -> None:
            await context.read()
            await context.write(ServerBatch(version=13))
            await context.read()

        def unpack(batch: Any) -> Any:
            raise ValueError("version 13")

        async with connected(session) as channel:
            stream: RequestStream[Any, Any] = RequestStream(
                session_method(channel), pack_requests, unpack, rng=random.Random(1)
            )
            error = await outcome(stream.call(Request()))
            assert error.code is Code.UNAVAILABLE
            await stream.close()

    asyncio.run(scenario())
    assert any(record.exc_info for record in caplog.records)
