"""`make demo`: the database of the F1 paper on this machine, from nothing to the death of a leader.

Starts a cluster on free ports in a temporary directory, makes the AdWords schema of the paper, loads generated data,
and runs the paper's queries (F1 sections 8.2, 8.5 and 8.7), a lookup through a global index and the history of a root
row. Then eight clients move money between campaigns while the leader of their group is killed: nothing that was
acknowledged is lost. Ends at an SQL prompt if there is a terminal. Exits 0 if all went well; leaves nothing behind.
"""

import argparse
import asyncio
import itertools
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

import f1
from f1.shell.render import text_of
from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.pb import schema_pb2
from f1deploy.samples import adwords
from spanstore.tools.ranges import leaders_of
from spanstore.tools.target import from_directory

SHOWN_ROWS = 5
CLIENTS = 8
CAMPAIGNS = 100
QUIET_S, DEAD_S, RECOVERED_S = 3.0, 5.0, 3.0

CLICKS_BY_CAMPAIGN = """\
SELECT agcr.CampaignId, click.Region, cr.Language, SUM(click.Clicks)
FROM AdClick click
  JOIN AdGroupCreative agcr USING (AdGroupId, CreativeId)
  JOIN Creative cr USING (CustomerId, CreativeId)
WHERE click.Date = '2013-03-23'
GROUP BY agcr.CampaignId, click.Region, cr.Language"""
HIERARCHY = """\
SELECT *
FROM Customer JOIN Campaign USING (CustomerId)"""
PROTO_FIELD = """\
SELECT c.CustomerId, c.Info
FROM Customer AS c
WHERE c.Info.country_code = 'US'"""
PROTO_JOIN = """\
SELECT c.CustomerId, f.feature
FROM Customer AS c PROTO JOIN c.Whitelist.feature AS f
WHERE f.status = 'STATUS_ENABLED'"""
PROTO_SUBQUERIES = """\
SELECT c.CustomerId, c.Info, (SELECT COUNT(*) FROM c.Whitelist.feature) nf
FROM Customer AS c
WHERE EXISTS (SELECT * FROM c.Whitelist.feature f WHERE f.status != 'STATUS_ENABLED')"""
BY_TEXT = """\
SELECT CustomerId, CampaignId, AdGroupId, MaxCpc
FROM Keyword
WHERE Text = 'cheap shoes'"""
RAISE_BUDGETS = """\
UPDATE Campaign SET Budget = Budget * 2 WHERE CustomerId = 1 AND Budget < 1000"""
HISTORY = """\
SELECT commit_ts, kind, table_name, key, before, after
FROM ChangeHistory_Customer
WHERE CustomerId = 1
ORDER BY commit_ts DESC, change"""
MOVE = "UPDATE Campaign SET Budget = Budget + ? WHERE CustomerId = ? AND CampaignId = ?"

out = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def chapter(title: str) -> None:
    out.print()
    out.rule(Text(title, "bold"), align="left")


def say(text: str) -> None:
    out.print(Text(text))


class Shell:
    """Runs `f1` as a user would, and shows the command."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "cluster"
        self.folder = folder
        self.hosts = ""

    def run(self, *arguments: str, quiet: bool = False, show: str = "") -> str:
        """Run a command and return what it prints. Raises SystemExit if it fails."""
        if not quiet:
            out.print(Text(f"$ f1 {show or ' '.join(arguments)}", "bold cyan"))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "f1", *arguments],
            cwd=self.folder,
            env={**os.environ, "F1_HOST": self.hosts},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"f1 {' '.join(arguments)} failed")
        if not quiet:
            say(done.stdout.rstrip())
        return done.stdout

    def cluster(self, *arguments: str, quiet: bool = False) -> str:
        shown = " ".join(("cluster", *arguments))
        return self.run("cluster", *arguments, "--dir", str(self.directory), quiet=quiet, show=shown)

    def up(self) -> None:
        self.cluster("up", "--port", "0")
        status = msgspec.json.decode(self.cluster("status", "--format", "json", quiet=True))
        self.hosts = ",".join(process["address"] for process in status if process["kind"] == "f1server")

    def prompt(self) -> None:
        """Let the user look around."""
        chapter("Your turn")
        say("This is `f1 sql` on the cluster: \\d lists the tables, \\q ends, and takes the cluster down.")
        command = [sys.executable, "-P", "-m", "f1", "sql", "--host", self.hosts]
        subprocess.run(command, cwd=self.folder, check=False)


@contextmanager
def cluster() -> Iterator[Shell]:
    """A cluster in a temporary directory, stopped and removed in the end."""
    with tempfile.TemporaryDirectory(prefix="f1-demo-") as folder:
        shell = Shell(Path(folder))
        chapter("A cluster: three storage servers with a disk each, two SQL servers, a master and two slaves")
        try:
            shell.up()
            yield shell
        except Exception:
            say(shell.cluster("logs", quiet=True))
            raise
        finally:
            if shell.directory.exists():
                chapter("The end")
                shell.cluster("down")


def load(shell: Shell, clicks: int) -> None:
    """Make the schema and load generated data."""
    chapter("A schema: hierarchical tables, protobuf columns, local and global indexes (F1 section 3)")
    ddl, proto = adwords.write_sources(shell.folder)
    shell.run("schema", "apply", "--yes", ddl.name, proto.name)
    chapter(f"{clicks:,} clicks and what they belong to, in transactions that keep indexes and history up to date")
    started_us = boot_us()
    paths = adwords.generate(shell.folder, clicks=clicks)
    say(f"(generated in {seconds_since(started_us):.1f} s)")
    started_us = boot_us()
    for name, path in paths.items():
        shell.run("load", name, path.name)
    say(f"All tables in {seconds_since(started_us):.1f} s.")


def seconds_since(moment_us: int) -> float:
    return (boot_us() - moment_us) / 1e6


# ---------------------------------------------------------------------------------------------------- queries


class Asker:
    """Runs statements and shows what they give."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def ask(self, sql: str, *, shown: int = SHOWN_ROWS, why: str = "") -> list[tuple[Any, ...]]:
        out.print()
        if why:
            say(why)
        out.print(Syntax(sql, "sql", background_color="default"))
        started_us = boot_us()
        cursor = await self._connection.execute(sql)
        rows = await cursor.fetchall() if cursor.description else []
        took_ms = seconds_since(started_us) * 1000
        if cursor.description:
            out.print(as_table([column[0] for column in cursor.description], rows[:shown]))
        count = len(rows) if cursor.description else cursor.rowcount
        more = f", the first {shown} of which are shown" if len(rows) > shown else ""
        out.print(Text(f"{count:,} row{'' if count == 1 else 's'} in {took_ms:.0f} ms{more}", "dim"))
        return rows

    async def explain(self, sql: str) -> None:
        out.print()
        out.print(Syntax(f"EXPLAIN {sql}", "sql", background_color="default"))
        cursor = await self._connection.execute(f"EXPLAIN {sql}")
        for (line,) in await cursor.fetchall():
            say(f"  {line}")


def as_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = [[text_of(value) for value in row] for row in rows]
    columns = list(zip(names, *texts, strict=True))
    widths = fitting([max(map(len, column)) for column in columns], out.width - 3 * len(names))
    for i, name in enumerate(names):
        numeric = bool(rows) and all(isinstance(row[i], int | Decimal | float) for row in rows)
        table.add_column(
            Text(name),
            justify="right" if numeric else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=widths[i],
            max_width=widths[i],
        )
    for row in texts:
        table.add_row(*map(Text, row))
    return table


def fitting(widths: Sequence[int], total: int) -> list[int]:
    """Return widths of columns that fit together; the widest give way."""
    fitted = list(widths)
    while sum(fitted) > max(total, len(fitted)):
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


async def show_spread(shell: Shell, connection: Any, asker: Asker) -> None:
    """Show what slaves do of a large query, and that it needs no master."""
    chapter("A large query is cut into parts that slaves run together (sections 8.1 and 8.2)")
    await asker.ask(CLICKS_BY_CAMPAIGN, why="Clicks of a day by campaign, region and language:")
    await measure(connection)
    say("Queries do without the master, who only tells which slaves live:")
    await asyncio.to_thread(shell.cluster, "kill", "master")
    await measure(connection)
    await asyncio.to_thread(shell.cluster, "start", "master")


async def measure(connection: Any) -> None:
    """Run the query once more and show who read what, and what went where."""
    cursor = await connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {CLICKS_BY_CAMPAIGN}")
    ((text,),) = await cursor.fetchall()
    plan = msgspec.json.decode(text)
    say(f"{plan['execution']}: {plan['reason']}")
    rows = [
        (
            part["id"],
            " ".join(dict.fromkeys(o["table"] for o in part["operators"] if o["operator"] == "scan"))
            or "parts " + ", ".join(map(str, part["inputs"])),
            " ".join(dict.fromkeys(o["spread"] for o in part["operators"] if o["operator"] == "send"))
            or "to the client",
            one["worker"],
            sum(read["rows"] for read in one["read"]),
            one["rows"],
            sum(sent["bytes"] for sent in one["sent"] if sent["to"] != one["worker"]),
        )
        for part in plan["parts"]
        for one in part.get("measured", ())
    ]
    if rows:
        out.print(as_table(["part", "reads", "rows go", "worker", "rows in", "rows out", "bytes to others"], rows))


async def show_queries(shell: Shell, connection: Any) -> None:
    asker = Asker(connection)
    for name in ("adwords.CustomerInfo", "adwords.Whitelist"):
        await connection.message_class(name)  # results give such messages now, not their bytes
    chapter("The queries of the paper")
    await asker.ask(HIERARCHY, why="A parent with its children, which lie together (section 8.5):")
    await asker.ask(PROTO_FIELD, why="A field of a protobuf column, and the whole message (section 8.7):")
    await asker.ask(PROTO_JOIN, why="A repeated field as if it were a child table:")
    await asker.ask(PROTO_SUBQUERIES, why="Subqueries over a repeated field:")
    await show_spread(shell, connection, asker)
    chapter("A lookup through a global index (section 3.3)")
    await asker.explain(BY_TEXT)
    await asker.ask(BY_TEXT)
    chapter("Everything that ever happened to a customer is a query away (section 6)")
    await asker.ask(RAISE_BUDGETS)
    await asker.ask(HISTORY, shown=4)


# ------------------------------------------------------------------------------------- the death of a leader

Campaign = tuple[int, int]


@dataclass
class Books:
    """What the clients know: every transfer that was acknowledged, and those whose fate they were not told."""

    expected: dict[Campaign, Decimal]
    acknowledged: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    uncertain: set[Campaign] = field(default_factory=set)
    moments_us: list[int] = field(default_factory=list)
    running: bool = True

    def note(self, source: Campaign, target: Campaign, amount: Decimal) -> None:
        self.acknowledged += 1
        self.moments_us.append(boot_us())
        self.expected[source] -= amount
        self.expected[target] += amount


async def transfer(connection: Any, source: Campaign, target: Campaign, amount: Decimal) -> None:
    """Move budget from one campaign to another: both rows in one transaction, retried as conflicts require."""

    async def move(tx: Any) -> None:
        await tx.execute(MOVE, (-amount, *source))
        await tx.execute(MOVE, (amount, *target))

    await connection.run(move)


async def client(connection: Any, books: Books, number: int) -> None:
    """One transfer after the other until the books are closed."""
    rng = random.Random(number)
    campaigns = sorted(books.expected)
    while books.running:
        source, target = rng.sample(campaigns, 2)
        amount = Decimal(rng.randint(1, 100)) / 100
        try:
            await transfer(connection, source, target, amount)
            books.note(source, target, amount)
        except f1.Error as error:
            if error.ambiguous:
                books.uncertain |= {source, target}
            else:
                books.refused[error.code] += 1
            await asyncio.sleep(0.05)


async def budgets(connection: Any, at_least: int = 0) -> dict[Campaign, Decimal]:
    """Return the budgets of campaigns that have some, at one timestamp."""
    cursor = await connection.execute(
        "SELECT CustomerId, CampaignId, Budget FROM Campaign WHERE Budget >= ? ORDER BY CustomerId, CampaignId",
        (at_least,),
    )
    return {(customer, campaign): budget for customer, campaign, budget in await cursor.fetchall()}


async def kill_a_leader(shell: Shell, connection: Any, books: Books) -> int:
    """Let the clients work while the leader of their group dies; return the moment of its death."""
    clients = [asyncio.create_task(client(connection, books, number)) for number in range(CLIENTS)]
    schema = schema_pb2.Schema.FromString((await connection.session.show_schema()).schema)
    (customer,) = (table.id for table in schema.tables if table.name == "Customer")
    async with from_directory(shell.directory).client() as storage:
        group = (await storage.range_map()).group_of(tuples.encode((customer,)))
        await asyncio.sleep(QUIET_S)
        victim = leaders_of(await storage.status())[group]
        say(f"{books.acknowledged:,} transfers so far. Now {victim} dies, the leader of the customers' Paxos group:")
        died_us = boot_us()
        await asyncio.to_thread(shell.cluster, "kill", victim)
        await asyncio.sleep(DEAD_S)
        heir = leaders_of(await storage.status()).get(group, "nobody")
        say(f"{books.acknowledged:,} transfers; now {heir} leads. The dead one comes back and catches up:")
        await asyncio.to_thread(shell.cluster, "start", victim)
        await asyncio.sleep(RECOVERED_S)
    books.running = False
    await asyncio.gather(*clients)
    return died_us


def longest_pause_ms(moments_us: Sequence[int], since_us: int) -> float:
    """The longest time without an acknowledged transfer that ends after ``since_us``."""
    pairs = itertools.pairwise(moments_us)
    return max((later - earlier for earlier, later in pairs if later > since_us), default=0) / 1000


async def show_a_death(shell: Shell, connection: Any) -> bool:
    chapter("A leader dies while clients write")
    chosen = dict(itertools.islice((await budgets(connection, at_least=200)).items(), CAMPAIGNS))
    books = Books(dict(chosen))
    say(f"{CLIENTS} clients move money between {len(chosen)} campaigns, which have {sum(chosen.values())} together.")
    died_us = await kill_a_leader(shell, connection, books)
    everything = await budgets(connection)
    found = {campaign: everything.get(campaign) for campaign in chosen}
    wrong = [c for c in chosen if c not in books.uncertain and found[c] != books.expected[c]]
    total = sum(amount or 0 for amount in found.values())
    intact = total == sum(chosen.values())
    say(f"\n{books.acknowledged:,} transfers were acknowledged.")
    for code, count in books.refused.items():
        say(f"{count} were refused with {code}: they did not happen.")
    if books.uncertain:
        say(f"Clients were not told how transfers of {len(books.uncertain)} campaigns ended.")
    say(f"Longest pause of all clients after the death: {longest_pause_ms(books.moments_us, died_us):.0f} ms.")
    say(f"Sum of the budgets: {total} ({'intact' if intact else 'WRONG'}).")
    say(f"Campaigns whose budget is not what the acknowledged transfers make it: {len(wrong)}.")
    return intact and not wrong and books.acknowledged > 0


async def demonstrate(shell: Shell) -> bool:
    async with await f1.aio.connect(shell.hosts, autocommit=True) as connection:
        await show_queries(shell, connection)
        return await show_a_death(shell, connection)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="The database of the F1 paper on this machine.")
    parser.add_argument("--clicks", type=int, default=200_000, help="rows of the largest table (%(default)s)")
    parser.add_argument("--no-prompt", action="store_true", help="end without a prompt at a terminal, too")
    options = parser.parse_args(arguments)
    with cluster() as shell:
        load(shell, options.clicks)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            well = runner.run(demonstrate(shell))
        if sys.stdin.isatty() and sys.stdout.isatty() and not options.no_prompt:
            shell.prompt()
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
