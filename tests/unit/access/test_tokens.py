"""Tokens: what is signed is read back, and nothing else is; how long guesses wait."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1server.access.guesses import Guesses, delay_s
from f1server.access.tokens import Purpose, Session, Signed, fingerprint, open_token, sign
from f1server.catalog.roles import Role

KEYS = {1: b"a" * 32, 2: b"b" * 32}
SAYS = Session("default", 7, b"12345678").to_bytes()


def refused(token: bytes, purpose: Purpose = Purpose.SESSION) -> bool:
    try:
        open_token(token, purpose, KEYS.get)
    except F1Error as error:
        assert error.code is Code.UNAUTHENTICATED
        return True
    return False


def test_what_is_signed_is_read_back() -> None:
    token = sign(Purpose.SESSION, SAYS, 99, 2, KEYS[2])
    assert open_token(token, Purpose.SESSION, KEYS.get) == Signed(SAYS, 99)
    assert Session.from_bytes(SAYS) == Session("default", 7, b"12345678")


def test_a_token_is_for_one_purpose_and_of_a_key_that_is_known() -> None:
    assert refused(sign(Purpose.SERVER, SAYS, 99, 1, KEYS[1]))
    assert refused(sign(Purpose.CHALLENGE, SAYS, 99, 1, KEYS[1]))
    assert refused(sign(Purpose.SESSION, SAYS, 99, 1, KEYS[2]))
    assert refused(sign(Purpose.SESSION, SAYS, 99, 3, b"c" * 32))


@given(st.integers(0, 200), st.integers(1, 255))
def test_no_byte_of_a_token_can_be_changed(place: int, flip: int) -> None:
    token = bytearray(sign(Purpose.SESSION, SAYS, 99, 1, KEYS[1]))
    token[place % len(token)] ^= flip
    assert refused(bytes(token))


@given(st.binary(max_size=200))
def test_what_is_no_token_is_refused(data: bytes) -> None:
    assert refused(data)
    assert refused(sign(Purpose.SESSION, SAYS, 99, 1, KEYS[1])[: len(data)])


def test_the_fingerprint_changes_with_the_password() -> None:
    assert fingerprint(Role(1, "a", verifier="x")) != fingerprint(Role(1, "a", verifier="y"))


def test_each_guess_waits_longer_up_to_some_seconds() -> None:
    waits = [delay_s(n) for n in range(40)]
    assert waits[:3] == [0, 0, 0] and waits[3] > 0 and waits == sorted(waits) and waits[-1] == 8.0


def test_guesses_at_one_name_come_one_by_one_and_right_ones_wait_too() -> None:
    slept: list[float] = []
    running = 0

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def guess(guesses: Guesses, failed: bool) -> None:
        nonlocal running
        async with guesses.attempt("App", b"k") as attempt:
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            attempt.failed = failed
            running -= 1

    async def main() -> None:
        guesses = Guesses(sleep)
        for _ in range(5):
            await guess(guesses, failed=True)
        assert slept == [0.25, 0.5]
        # In parallel they get no further: the sixth waits as the sixth, and too many are turned away.
        results = await asyncio.gather(*(guess(guesses, failed=True) for _ in range(10)), return_exceptions=True)
        turned = [r for r in results if isinstance(r, F1Error)]
        assert len(turned) == 2 and all(error.code is Code.OVERLOADED for error in turned)
        assert slept[2:] == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
        slept.clear()
        await guess(guesses, failed=False)
        await guess(guesses, failed=False)
        assert slept == [8.0]
        async with guesses.attempt("another", b"k"):
            assert slept == [8.0]

    asyncio.run(main())
