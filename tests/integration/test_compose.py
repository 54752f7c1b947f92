"""The compose file, played without a container engine: each service on a host of its own, with cables to pull.

What is asserted of clients: optimistic transactions through ``conn.run`` see no error, whatever host is cut off or
restarted as long as a majority of each group and one f1server are there, and money is neither made nor lost.
"""

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import f1
from f1common.config import Config
from scripts import demo
from tests.integration.netns.compose import Service, read_compose, read_image, start_order
from tests.integration.netns.containers import Containers
from tests.integration.netns.network import Network, why_not

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
IMAGE = read_image(DEPLOY / "Dockerfile")
SERVICES, DOCUMENT = read_compose(COMPOSE, IMAGE)
KINDS = {
    "spanserver": ["span-a1", "span-b1", "span-c1"],
    "server": ["f1-1", "f1-2"],
    "master": ["master"],
    "slave": ["slave-1", "slave-2"],
    "timestamps": ["timestamps-1", "timestamps-2"],
    "locks": ["locks"],
}
KINDS_OF_EXECUTION = ("DISTRIBUTED", "CENTRAL")
CLICKS = 6_000

CLIENTS = 4
CAMPAIGNS = 30
# How many transfers more prove that clients go on.
PROGRESS = 30
_PATIENCE_S = 60.0

# --------------------------------------------------------------------------------------------- what the files say


def configuration(service: Service) -> Config:
    """What a service reads when it starts."""
    (path,) = [mount.source for mount in service.mounts if mount.target == service.command[3]]
    assert path is not None
    return Config.load(DEPLOY / path, service.environment)


def test_the_services_are_those_of_the_architecture() -> None:
    kinds: dict[str, list[str]] = {}
    for name, service in SERVICES.items():
        assert service.command[0] == "f1"
        kinds.setdefault(service.command[1], []).append(name)
    assert kinds == KINDS


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_knows_its_name_and_listens_at_it_alone(name: str) -> None:
    service = SERVICES[name]
    server = configuration(service).server
    assert (server.name, server.host, service.hostname) == (name, name, name)
    assert service.port == server.port != 0


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_watched_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service.health == ("f1", "health")
    assert service.raw["restart"] == "unless-stopped"
    drain_s = configuration(service).server.drain_timeout_ms / 1000
    assert int(service.raw["stop_grace_period"].removesuffix("s")) > 2 * drain_s


@pytest.mark.parametrize("name", KINDS["spanserver"])
def test_the_addresses_of_spanservers_lead_to_them(name: str) -> None:
    service = SERVICES[name]
    config = configuration(service)
    (known,) = [server for server in config.cluster.servers if server.name == name]
    assert (known.zone, known.address) == (config.server.zone, f"{name}:{service.port}")


def test_only_f1servers_are_published_and_only_to_this_machine() -> None:
    published = {name: service.published for name, service in SERVICES.items() if service.published}
    assert published == {"f1-1": ("127.0.0.1:7400:7400",), "f1-2": ("127.0.0.1:7401:7400",)}


def test_each_spanserver_keeps_its_data_in_a_volume_of_its_own() -> None:
    volumes = []
    for name in KINDS["spanserver"]:
        data_dir = configuration(SERVICES[name]).server.data_dir
        volumes += [mount.source for mount in SERVICES[name].mounts if mount.target == data_dir]
    assert volumes == sorted(DOCUMENT["volumes"])


def test_services_start_after_what_they_need() -> None:
    order = start_order(SERVICES)
    for name in (*KINDS["server"], *KINDS["slave"], *KINDS["timestamps"]):
        assert all(order.index(spanserver) < order.index(name) for spanserver in KINDS["spanserver"])
    assert all(order.index("master") < order.index(name) for name in KINDS["slave"])
    for service in SERVICES.values():
        assert set(service.needs.values()) <= {"service_healthy"}


def test_all_processes_share_one_topology_and_a_clock_that_holds_across_containers() -> None:
    configs = [configuration(service) for service in SERVICES.values()]
    assert all(config.cluster == configs[0].cluster for config in configs)
    assert configs[0].cluster.master == f"master:{SERVICES['master'].port}"
    assert configs[0].cluster.timestamps == tuple(f"{name}:{SERVICES[name].port}" for name in KINDS["timestamps"])
    assert configs[0].cluster.locks == f"locks:{SERVICES['locks'].port}"
    assert {config.clock.source for config in configs} == {"bounded"}


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    assert (IMAGE.entrypoint, IMAGE.user) == (("f1",), "f1")
    froms = [line.split()[1] for line in IMAGE.text.splitlines() if line.startswith("FROM ")]
    assert froms and all(name.startswith("python:3.11.") and "slim" in name for name in froms)
    installs = [line for line in IMAGE.text.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


@pytest.mark.parametrize("path", sorted((DEPLOY / "config").glob("*.toml")), ids=lambda path: str(path.name))
def test_samples_of_configurations_can_be_loaded(path: Path) -> None:
    own = tomllib.loads(path.read_text(encoding="utf-8")).get("server", {})
    env = {"F1_SERVER_NAME": "span-a1", "F1_SERVER_ZONE": "a", "F1_SERVER_PORT": "7500", "F1_SERVER_DATA_DIR": "/x"}
    Config.load(path, {} if own else env)


# ------------------------------------------------------------------------------------------------ hosts that run it


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("compose")
    with Network(folder / "hosts") as network, Containers(network, SERVICES, folder, COMPOSE) as running:
        running.up()
        yield running


@pytest.fixture(scope="module")
def loaded(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's schema and data, loaded over the network; the folder with the files."""
    shell = demo.Shell(tmp_path_factory.mktemp("data"))
    shell.hosts = hosts(containers)
    demo.load(shell, clicks=CLICKS)
    return shell.folder


def hosts(containers: Containers) -> str:
    return ",".join(containers.address(name) for name in containers.names("server"))


def test_health_checks_find_servers_at_their_names_and_none_on_loopback(containers: Containers) -> None:
    for names in KINDS.values():
        assert containers.healthy(names[0])
    for name in ("span-a1", "f1-1"):
        assert not containers.healthy(name, address=f"127.0.0.1:{SERVICES[name].port}")


def test_the_queries_of_the_demo_give_what_the_files_say(containers: Containers, loaded: Path) -> None:
    table = parquet.read_table(loaded / "AdClick.parquet", columns=["Date", "Clicks"]).to_pylist()
    clicks = sum(row["Clicks"] for row in table if str(row["Date"]) == "2013-03-23")
    with f1.connect(hosts(containers), autocommit=True) as connection:
        found = {sql: ask(connection, sql) for sql in (demo.CLICKS_BY_CAMPAIGN, demo.HIERARCHY, demo.BY_TEXT)}
        assert sum(row[3] for row in found[demo.CLICKS_BY_CAMPAIGN]) == clicks > 0
        assert len(found[demo.HIERARCHY]) == ask(connection, "SELECT COUNT(*) FROM Campaign")[0][0] > 0
        by_scan = ask(connection, "SELECT COUNT(*) FROM Keyword WHERE Text || '' = 'cheap shoes'")
        assert len(found[demo.BY_TEXT]) == by_scan[0][0] > 0
        for sql in (demo.PROTO_FIELD, demo.PROTO_JOIN, demo.PROTO_SUBQUERIES):
            assert ask(connection, sql)


def test_queries_are_spread_over_slaves_and_go_on_without_the_master_or_a_slave(
    containers: Containers, loaded: Path
) -> None:
    spread, whole = (demo.CLICKS_BY_CAMPAIGN.replace("SELECT", f"SELECT /*+ {how} */") for how in KINDS_OF_EXECUTION)
    with f1.connect(hosts(containers), autocommit=True) as connection:
        expected = sorted(ask(connection, whole))
        assert expected
        for lost in ("", "master", "slave-1"):
            if lost:
                containers.host(lost).cut()
            try:
                # The plan says so when it is asked for; the list of slaves may still name one that is cut off.
                plan = json.loads(ask(connection, f"EXPLAIN (FORMAT JSON) {spread}")[0][0])
                assert plan["execution"] == "distributed", (lost, plan)
                assert sorted(ask(connection, spread)) == expected, lost
            finally:
                if lost:
                    containers.host(lost).mend()
                    containers.wait_healthy(lost)


def ask(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


# --------------------------------------------------------------------------------------------- faults and upgrades


@dataclass
class Work:
    """Clients that move money all the time, and what they know."""

    books: demo.Books
    queries: int = 0

    async def ask(self, connection: Any) -> None:
        """Ask the same query of all slaves again and again; the answer never changes."""
        while self.books.running:
            cursor = await connection.execute("SELECT /*+ DISTRIBUTED */ COUNT(*), COUNT(Clicks) FROM AdClick")
            assert await cursor.fetchall() == [(CLICKS, CLICKS)]
            self.queries += 1
            await asyncio.sleep(0.2)

    async def progress(self, count: int = PROGRESS) -> None:
        """Wait until `count` transfers more are acknowledged."""
        goal = self.books.acknowledged + count
        async with asyncio.timeout(_PATIENCE_S):
            while self.books.acknowledged < goal:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def at_work(containers: Containers) -> AsyncIterator[Work]:
    """Let clients work; in the end no one has seen an error, and the budgets are what they made them."""
    async with await f1.aio.connect(hosts(containers), autocommit=True) as connection:
        everything = await demo.budgets(connection, at_least=200)
        books = demo.Books(dict(list(everything.items())[:CAMPAIGNS]))
        assert len(books.expected) == CAMPAIGNS
        total = sum(books.expected.values(), Decimal(0))
        clients = [asyncio.create_task(demo.client(connection, books, number)) for number in range(CLIENTS)]
        work = Work(books)
        clients.append(asyncio.create_task(work.ask(connection)))
        await work.progress()
        yield work
        await work.progress()
        books.running = False
        await asyncio.gather(*clients)
        assert work.queries > 0
        found = await demo.budgets(connection)
        assert {campaign: found.get(campaign) for campaign in books.expected} == books.expected
        assert sum(books.expected.values(), Decimal(0)) == total
        assert (dict(books.refused), books.uncertain) == ({}, set())


def while_clients_work(containers: Containers, play: Callable[[Work], Awaitable[None]]) -> None:
    """Run `play` among working clients. The logs of all servers go with a failure."""

    async def run() -> None:
        async with at_work(containers) as work:
            await play(work)

    try:
        asyncio.run(run())
    except BaseException:
        print(containers.logs())
        raise


async def cut_off(containers: Containers, name: str, work: Work) -> None:
    """Pull the cable of a host while clients work, and plug it in again."""
    containers.host(name).cut()
    try:
        await work.progress()
    finally:
        containers.host(name).mend()
    await asyncio.to_thread(containers.wait_healthy, name)
    await work.progress()


@pytest.mark.parametrize("name", ["leader", "f1-1", "master", "slave-1"])
def test_a_host_that_is_cut_off_costs_clients_no_error(containers: Containers, loaded: Path, name: str) -> None:
    victim = leader(containers) if name == "leader" else name
    while_clients_work(containers, lambda work: cut_off(containers, victim, work))


def leader(containers: Containers) -> str:
    """Return the spanserver that leads the group of the first root table, which the clients write to."""
    status = json.loads(containers.ask("f1-2", "f1", "status", "--host", "f1-2:7400", "--format", "json"))
    (found,) = [str(group["leader"]) for group in status["groups"] if group["group"] == 1]
    assert found in KINDS["spanserver"]
    return found


def test_a_bad_cable_costs_clients_no_error(containers: Containers, loaded: Path) -> None:
    async def play(work: Work) -> None:
        containers.host("span-b1").degrade(delay_ms=10, loss=0.02, seed=1)
        try:
            await work.progress()
        finally:
            containers.host("span-b1").restore()

    while_clients_work(containers, play)


async def upgrade(containers: Containers, work: Work) -> None:
    """Restart every host, one after the other, each when the one before is healthy again."""
    for name in SERVICES:
        code = await asyncio.to_thread(containers.stop, name)
        assert code == 0, containers.log(name)
        await work.progress(5)
        containers.start(name)
        await asyncio.to_thread(containers.wait_healthy, name)
        await work.progress(5)


def test_a_rolling_upgrade_costs_clients_no_error(containers: Containers, loaded: Path) -> None:
    while_clients_work(containers, lambda work: upgrade(containers, work))


def test_a_host_that_comes_back_under_another_address_is_found(containers: Containers, loaded: Path) -> None:
    async def play(work: Work) -> None:
        assert await asyncio.to_thread(containers.stop, "span-c1") == 0
        await work.progress()  # meanwhile the others look it up and find where it was
        containers.move("span-c1")
        containers.start("span-c1")
        await asyncio.to_thread(containers.wait_healthy, "span-c1")
        # With another server gone there is a majority only if the others have found it.
        await asyncio.to_thread(containers.kill, "span-a1")
        try:
            await work.progress()
        finally:
            containers.start("span-a1")

    while_clients_work(containers, play)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_upgrades_and_cuts_cost_clients_no_error(containers: Containers, loaded: Path) -> None:
    async def play(work: Work) -> None:
        for _ in range(3):
            for name in SERVICES:
                await cut_off(containers, name, work)
            await upgrade(containers, work)

    while_clients_work(containers, play)
