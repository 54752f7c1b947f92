"""What the simulated channel and server promise, held against real grpc.aio: the same test bodies run over both."""

import asyncio

import grpc
import pytest
from grpc import aio

from spanstore.testing.sim import run_sim

TESTS = []


def contract(body):
    """Register a test body, which gets a stub and the servicer behind it."""
    TESTS.append(body)
    return body


async def eventually(condition):
    """Wait until ``condition`` holds."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


@contract
async def unary_answers_and_carries_initial_metadata(stub, servicer):
    call = stub.Upper(b"abc", metadata=(("who", "me"),))
    assert await call == b"ABC"
    assert await call.code() is grpc.StatusCode.OK
    assert dict(await call.initial_metadata())["seen"] == "yes"
    assert call.done() and not call.cancelled() and not call.cancel()
    assert ("who", "me") in {(key, value) for key, value in servicer.contexts[0].invocation_metadata()}


@contract
async def abort_raises_with_code_details_and_trailing_metadata(stub, servicer):
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Upper(b"abort")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "no such thing"
    assert dict(caught.value.trailing_metadata()) == {"why": "asked"}


@contract
async def an_exception_in_a_handler_is_unknown(stub, servicer):
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Upper(b"boom")
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert caught.value.details() == "Unexpected <class 'ValueError'>: boom"


@contract
async def a_code_set_by_the_handler_is_the_outcome(stub, servicer):
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Upper(b"code")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.DATA_LOSS, "lost")


@contract
async def an_unknown_method_is_unimplemented(stub, servicer):
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Missing(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@contract
async def a_deadline_ends_the_call_and_cancels_the_handler(stub, servicer):
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Upper(b"sleep", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: servicer.events)
    assert servicer.events[0][0] == "cancelled"


@contract
async def the_handler_knows_how_much_time_is_left(stub, servicer):
    await stub.Upper(b"x", timeout=100)
    assert 90 < servicer.contexts[0].time_remaining() < 110
    await stub.Upper(b"x")
    assert servicer.contexts[1].time_remaining() is None


@contract
async def cancelling_the_call_cancels_the_handler(stub, servicer):
    call = stub.Upper(b"sleep")
    await eventually(lambda: servicer.contexts)
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert call.cancelled()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await eventually(lambda: servicer.events)


@contract
async def cancelling_the_awaiting_task_cancels_the_call(stub, servicer):
    async def waits():
        await stub.Upper(b"sleep")

    task = asyncio.ensure_future(waits())
    await eventually(lambda: servicer.contexts)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: servicer.events)


@contract
async def a_response_stream_can_be_iterated_or_read(stub, servicer):
    assert [x async for x in stub.Count(b"3")] == [b"0", b"1", b"2"]
    call = stub.Count(b"2")
    assert [await call.read(), await call.read(), await call.read()] == [b"0", b"1", aio.EOF]
    assert await call.code() is grpc.StatusCode.OK


@contract
async def a_slow_reader_misses_nothing_of_a_stream_that_has_ended(stub, servicer):
    for method, end in ((stub.Count, grpc.StatusCode.OK), (stub.Fails, grpc.StatusCode.DATA_LOSS)):
        call = method(b"5")
        assert await call.read() == b"0"
        await eventually(lambda: servicer.events)
        servicer.events.clear()
        await asyncio.sleep(0.2)
        assert not call.done()
        assert [await call.read() for _ in range(4)] == [b"1", b"2", b"3", b"4"]
        if end is grpc.StatusCode.OK:
            assert await call.read() is aio.EOF
        else:
            with pytest.raises(aio.AioRpcError):
                await call.read()
        assert await call.code() is end


@contract
async def an_abandoned_response_stream_ends_its_generator(stub, servicer):
    call = stub.Count(b"100000")
    assert await call.read() == b"0"
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()
    await eventually(lambda: servicer.events == ["count over"])


@contract
async def a_request_stream_from_iterators_and_from_writes(stub, servicer):
    async def parts():
        yield b"a"
        yield b"b"

    assert await stub.Join(parts()) == b"ab"
    assert await stub.Join(iter([b"c", b"d"])) == b"cd"
    call = stub.Join()
    await call.write(b"e")
    await call.done_writing()
    assert await call == b"e"


@contract
async def a_chat_in_both_styles_of_the_server(stub, servicer):
    for method in (stub.Chat, stub.Raw):
        call = method()
        for word in (b"a", b"b", b"c"):
            await call.write(word)
            assert await call.read() == word.upper()
        await call.done_writing()
        assert await call.read() is aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    assert servicer.events == [b"a", b"b", b"c"] * 2 + ["raw eof"]


@contract
async def mixing_styles_is_a_usage_error(stub, servicer):
    call = stub.Chat()
    await call.write(b"a")
    assert await call.read() == b"A"
    with pytest.raises(aio.UsageError):
        call.__aiter__()
    call.cancel()


@contract
async def writing_after_the_end_is_an_invalid_state(stub, servicer):
    call = stub.Chat()
    await call.write(b"a")
    await call.done_writing()
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"b")
    assert [await call.read(), await call.read()] == [b"A", aio.EOF]
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"b")


@contract
async def reading_a_cancelled_stream_raises_and_the_handler_is_cancelled_maybe_after_an_end(stub, servicer):
    call = stub.Raw()
    await call.write(b"a")
    assert await call.read() == b"A"
    done = []
    call.add_done_callback(done.append)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()
    await eventually(lambda: servicer.events[-1] == "raw cancelled")
    assert done == [call]


@contract
async def a_writer_waits_for_a_deaf_reader(stub, servicer):
    call = stub.Deaf()
    written = 0

    async def write():
        nonlocal written
        while True:
            await call.write(bytes(64 << 10))
            written += 1

    task = asyncio.ensure_future(write())
    await asyncio.sleep(1)
    before = written
    await asyncio.sleep(1)
    assert before == written < 500
    call.cancel()
    await asyncio.wait([task])


@contract
async def messages_written_before_half_close_all_arrive(stub, servicer):
    call = stub.Chat()
    for i in range(50):
        await call.write(b"%d" % i)
    await call.done_writing()
    assert [x async for x in call] == [b"%d" % i for i in range(50)]


@pytest.mark.parametrize("body", TESTS, ids=lambda body: body.__name__)
def test_simulated(body, echo):
    async def main(world):
        servicer = echo.Servicer()
        world.add_node("server", echo.start(servicer))
        client = world.add_client("client")
        await client.spawn(body(echo.Stub(client.channel("server:1")), servicer))

    for seed in range(5):
        run_sim(main, seed)


@pytest.mark.parametrize("body", TESTS, ids=lambda body: body.__name__)
def test_real(body, echo):
    async def main():
        servicer = echo.Servicer()
        server = aio.server()
        echo.add(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await body(echo.Stub(channel), servicer)
        finally:
            await server.stop(None)

    asyncio.run(main())
