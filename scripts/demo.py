"""`make demo`: a cluster of processes on this machine moves money between accounts while its leaders are killed.

Starts three storage servers on free ports in a temporary directory, opens accounts in four Paxos groups, and lets eight
clients move money across groups. Meanwhile the leader of a group dies by SIGKILL, and later starts again. In the end
the sum of all accounts is what it was, and every transfer that was acknowledged is there. Exits 0 if that is so; needs
no terminal; leaves nothing behind.
"""

import asyncio
import itertools
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from spanstore.client import KeyRange, SpanClient, Transaction, Write
from spanstore.placement.range_map import META_GROUP, RangeMap
from spanstore.tools.ranges import leaders_of, readable
from spanstore.tools.target import from_directory

ACCOUNTS = 20
START_BALANCE = 1_000
CLIENTS = 8
QUIET_S = 3.0
DEAD_S = 4.0
RECOVERED_S = 3.0


def f1(*arguments: str) -> str:
    """Run the command line as a user would and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "f1", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"f1 {' '.join(arguments)} failed")
    return done.stdout.rstrip()


def say(text: str = "") -> None:
    print(text, flush=True)


@contextmanager
def cluster() -> Iterator[Path]:
    """A cluster in a temporary directory, stopped and removed in the end."""
    with tempfile.TemporaryDirectory(prefix="f1-demo-") as folder:
        directory = Path(folder) / "cluster"
        say("Starting three storage servers: f1 cluster up")
        say(f1("cluster", "up", "--dir", str(directory), "--port", "0"))
        try:
            yield directory
        finally:
            f1("cluster", "down", "--dir", str(directory))
            say("The cluster is down and removed.")


@dataclass
class Books:
    """What the clients know: transfers that were acknowledged, and those whose fate they were not told."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    refused: int = 0
    moments_us: list[int] = field(default_factory=list)
    running: bool = True


class Bank:
    """Accounts in every data group, under the root table that the group owns first."""

    def __init__(self, client: SpanClient, ranges: RangeMap) -> None:
        self.client = client
        self.groups = [group for group in ranges.groups() if group != META_GROUP]
        self.homes = [ranges.owned_by(group)[0].start for group in self.groups]

    def account(self, home: int, number: int) -> bytes:
        return self.homes[home] + tuples.encode(("account", number))

    def receipt(self, home: int, number: int) -> bytes:
        return self.homes[home] + tuples.encode(("receipt", number))

    async def open_accounts(self) -> None:
        places = [(home, number) for home in range(len(self.homes)) for number in range(ACCOUNTS)]
        await self.client.commit([Write(self.account(*place), str(START_BALANCE).encode()) for place in places])

    async def transfer(self, number: int, rng: random.Random) -> bytes:
        """Move money between accounts of two groups and leave a receipt; return the receipt's key."""
        here, there = rng.sample(range(len(self.homes)), 2)
        source, target = self.account(here, rng.randrange(ACCOUNTS)), self.account(there, rng.randrange(ACCOUNTS))
        receipt, amount = self.receipt(here, number), rng.randint(1, 50)

        async def move(tx: Transaction) -> None:
            taken, given = (int(value or b"") for value in (await tx.read([source, target], exclusive=True)).values())
            tx.write(source, str(taken - amount).encode())
            tx.write(target, str(given + amount).encode())
            tx.write(receipt, str(amount).encode())

        await self.client.run(move)
        return receipt

    async def total(self) -> int:
        """The sum of all accounts at one timestamp."""
        ranges = [_everything(home, "account") for home in self.homes]
        return sum(int(row.value) for rows in (await self.client.read(ranges=ranges)).ranges for row in rows)

    async def receipts(self) -> set[bytes]:
        ranges = [_everything(home, "receipt") for home in self.homes]
        return {row.key for rows in (await self.client.read(ranges=ranges, timeout_s=30.0)).ranges for row in rows}


def _everything(home: bytes, kind: str) -> KeyRange:
    start = home + tuples.encode((kind,))
    return KeyRange(start, tuples.successor(start))


async def customer(bank: Bank, books: Books, name: int) -> None:
    """One client: a transfer after the other until the books are closed."""
    rng = random.Random(name)
    number = name
    while books.running:
        number += CLIENTS
        try:
            books.acknowledged[number] = await bank.transfer(number, rng)
            books.moments_us.append(boot_us())
        except F1Error as error:
            if error.ambiguous:
                books.unknown.add(number)
            else:
                books.refused += 1
            await asyncio.sleep(0.05)


async def show_ranges(client: SpanClient, ranges: RangeMap) -> dict[int, str]:
    leaders = leaders_of(await client.status())
    say("Groups, their leaders, and the root tables that each owns:")
    for group in ranges.groups():
        tables = [f"[{readable(r.start)}, {readable(r.end)})" for r in ranges.owned_by(group)]
        more = f" and {len(tables) - 3} more" if len(tables) > 3 else ""
        say(f"  group {group}  leader {leaders.get(group, '?'):<8} {' '.join(tables[:3])}{more}")
    return leaders


async def work_through_a_death(bank: Bank, books: Books, directory: Path) -> int:
    """Run the clients while a leader is killed and started again; return the moment of its death."""
    customers = [asyncio.create_task(customer(bank, books, name)) for name in range(1, CLIENTS + 1)]
    await asyncio.sleep(QUIET_S)
    group = bank.groups[0]
    victim = leaders_of(await bank.client.status())[group]
    say(f"\n{len(books.acknowledged)} transfers so far. Killing {victim}, the leader of group {group} (SIGKILL).")
    died_us = boot_us()
    await asyncio.to_thread(f1, "cluster", "kill", victim, "--dir", str(directory))
    await asyncio.sleep(DEAD_S)
    heir = leaders_of(await bank.client.status()).get(group, "nobody")
    say(f"{len(books.acknowledged)} transfers; now {heir} leads group {group}. Starting {victim} again.")
    await asyncio.to_thread(f1, "cluster", "start", victim, "--dir", str(directory))
    await asyncio.sleep(RECOVERED_S)
    books.running = False
    await asyncio.gather(*customers)
    return died_us


def longest_pause_ms(moments_us: list[int], since_us: int) -> float:
    """The longest time without an acknowledged transfer that ends after ``since_us``."""
    pairs = itertools.pairwise(moments_us)
    return max((later - earlier for earlier, later in pairs if later > since_us), default=0) / 1000


async def demonstrate(directory: Path) -> bool:
    async with from_directory(directory).client() as client:
        ranges = await client.range_map()
        await show_ranges(client, ranges)
        bank, books = Bank(client, ranges), Books()
        await bank.open_accounts()
        before = await bank.total()
        say(f"\n{ACCOUNTS * len(bank.homes)} accounts in {len(bank.homes)} groups hold {before} together.")
        say(f"{CLIENTS} clients move money from group to group; each transfer is a two-phase commit.")
        died_us = await work_through_a_death(bank, books, directory)
        after, receipts = await bank.total(), await bank.receipts()
        lost = [number for number, key in books.acknowledged.items() if key not in receipts]
        say(f"\n{len(books.acknowledged)} transfers were acknowledged, {len(receipts)} receipts are stored.")
        if books.unknown or books.refused:
            say(f"{books.refused} were refused; {len(books.unknown)} ended without the client knowing how.")
        say(f"Longest pause of all clients after the death: {longest_pause_ms(books.moments_us, died_us):.0f} ms.")
        say(f"Sum of all accounts: {after} ({'intact' if after == before else f'WRONG, was {before}'}).")
        say(f"Acknowledged transfers that were lost: {len(lost)}.\n")
        return after == before and not lost and bool(books.acknowledged)


def main() -> int:
    with cluster() as directory:
        well = asyncio.run(demonstrate(directory))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
