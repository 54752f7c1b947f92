"""The benchmark's works on our storage tier, through :mod:`spanstore.client`."""

import random
from collections.abc import Sequence

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error, check
from spanstore.client import KeyRange, SpanClient, Transaction, Write
from spanstore.placement.range_map import META_GROUP, RangeMap
from spanstore.tools.works import ACCOUNTS, ROW_BYTES, ROWS, START_BALANCE, Work

# No row of a table has this for the first part of its key.
_MARK = "f1 bench kv"
_BATCH = 500
_BALANCE_BYTES = 8


class SpanStore:
    """Accounts and rows in every data group."""

    def __init__(self, addresses: Sequence[str], clock: Clock | None, rng: random.Random) -> None:
        if clock is None:
            raise F1Error(Code.INVALID_ARGUMENT, "a client of the storage tier needs a clock")
        self._client = SpanClient(addresses, clock=clock, rng=rng)
        self._prefixes: tuple[bytes, ...] = ()

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def _homes(self) -> tuple[bytes, ...]:
        """Return one prefix of keys for each data group."""
        if not self._prefixes:
            self._prefixes = group_prefixes(await self._client.range_map())
        return self._prefixes

    async def prepare(self) -> None:
        """Write all accounts and rows."""
        balance = _balance(START_BALANCE)
        filler = bytes(ROW_BYTES)
        homes = await self._homes()
        writes = [Write(account(home, number), balance) for home in homes for number in range(ACCOUNTS)]
        writes += [Write(row(homes, number), filler) for number in range(ROWS)]
        await self._write(writes)

    async def _write(self, writes: Sequence[Write]) -> None:
        batches = [writes[at : at + _BATCH] for at in range(0, len(writes), _BATCH)]
        for batch in batches:
            await self._client.commit(batch, timeout_s=30.0)

    async def perform(self, work: Work, rng: random.Random) -> None:
        """Do one operation."""
        homes = self._prefixes or await self._homes()
        match work:
            case "transfer, one group":
                home = rng.choice(homes)
                a, b = rng.sample(range(ACCOUNTS), 2)
                await self._transfer(account(home, a), account(home, b), rng.randint(1, 100))
            case "transfer, two groups":
                here, there = rng.sample(homes, 2)
                a, b = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS)
                await self._transfer(account(here, a), account(there, b), rng.randint(1, 100))
            case "write one row":
                await self._put(Write(row(homes, rng.randrange(ROWS)), rng.randbytes(ROW_BYTES)))
            case "read one row":
                found = await self._client.read([row(homes, rng.randrange(ROWS))])
                check(found.versions[0] is not None, "a row that was written is there")

    async def _put(self, write: Write) -> None:
        """Write one row; a lost conflict is no error but time."""
        while True:
            try:
                await self._client.commit([write])
                return
            except F1Error as error:
                if error.code is not Code.ABORTED or error.ambiguous:
                    raise

    async def _transfer(self, source: bytes, target: bytes, amount: int) -> None:
        async def move(tx: Transaction) -> None:
            held = await tx.read([source, target], exclusive=True)
            taken, given = (_amount(value) for value in held.values())
            tx.write(source, _balance(taken - amount))
            tx.write(target, _balance(given + amount))

        await self._client.run(move)

    async def total(self) -> int:
        """Sum all accounts at one timestamp."""
        homes = await self._homes()
        found = await self._client.read(ranges=[_all_of(home, "account") for home in homes], timeout_s=30.0)
        return sum(_amount(item.value) for rows in found.ranges for item in rows)

    @property
    def expected_total(self) -> int:
        """What the accounts hold together."""
        return len(self._prefixes) * ACCOUNTS * START_BALANCE

    async def clean(self) -> None:
        """Delete all accounts and rows."""
        homes = await self._homes()
        keys = [account(home, number) for home in homes for number in range(ACCOUNTS)]
        keys += [row(homes, number) for number in range(ROWS)]
        await self._write([Write(key, None) for key in keys])


def group_prefixes(ranges: RangeMap) -> tuple[bytes, ...]:
    """Return for each data group a key that it owns together with what follows it; group 0 if there is no other."""
    groups = [group for group in ranges.groups() if group != META_GROUP] or [META_GROUP]
    return tuple(ranges.owned_by(group)[-1].start + tuples.encode((_MARK,)) for group in groups)


def account(home: bytes, number: int) -> bytes:
    """Return the key of an account."""
    return home + tuples.encode(("account", number))


def row(homes: Sequence[bytes], number: int) -> bytes:
    """Return the key of a row; rows are dealt to the groups."""
    return homes[number % len(homes)] + tuples.encode(("row", number))


def _all_of(home: bytes, kind: str) -> KeyRange:
    start = home + tuples.encode((kind,))
    return KeyRange(start, tuples.successor(start))


def _balance(amount: int) -> bytes:
    return amount.to_bytes(_BALANCE_BYTES, "big", signed=True)


def _amount(value: bytes | None) -> int:
    check(value is not None, "an account that was opened is there")
    return int.from_bytes(value or b"", "big", signed=True)
