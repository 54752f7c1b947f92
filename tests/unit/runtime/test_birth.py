"""Founders of a cluster, and servers that have lost their disks: who may begin with replicas."""

import asyncio
import random

import pytest

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.runtime.birth import Birth, Hello, verdict

FOUNDERS = ("a", "b", "c")


def new(name: str, engine: MemoryEngine | None = None, seed: int | None = None) -> Birth:
    return Birth(name, FOUNDERS, engine or MemoryEngine(), random.Random(seed if seed is not None else name))


async def settle(births: dict[str, Birth], *, down: tuple[str, ...] = (), timeout_s: float = 0.5) -> None:
    """Let all of ``births`` find out what they are, as far as they can."""

    async def ask(name: str) -> Hello:
        if name in down or name not in births:
            raise F1Error(Code.UNAVAILABLE, f"{name} is down")
        return births[name].hello()

    for name in births:
        await births[name].prepare()
    work = [births[name].settle(ask) for name in sorted(births) if name not in down]
    await asyncio.wait_for(asyncio.gather(*work), timeout_s)


@pytest.mark.asyncio
async def test_founders_begin_once_all_of_them_were_seen_unborn() -> None:
    births = {name: new(name) for name in FOUNDERS}
    with pytest.raises(TimeoutError):
        await settle(births, down=("c",))
    assert not any(birth.born for birth in births.values())
    await settle(births)
    assert all(birth.born and not birth.lost for birth in births.values())
    assert len({tuple(sorted((birth.certificate or {}).items())) for birth in births.values()}) == 1


@pytest.mark.asyncio
async def test_a_founder_that_comes_after_the_birth_was_counted_in_it() -> None:
    births = {name: new(name) for name in FOUNDERS}
    for birth in births.values():
        await birth.prepare()

    async def ask(name: str) -> Hello:
        return births[name].hello()

    await births["a"].settle(ask)
    assert births["a"].born
    await births["c"].settle(ask)
    assert births["c"].born and not births["c"].lost


@pytest.mark.asyncio
async def test_an_empty_directory_in_the_place_of_a_founders_is_lost() -> None:
    births = {name: new(name) for name in FOUNDERS}
    await settle(births)
    births["b"] = new("b", seed=7)
    await settle(births, down=("c",))
    assert births["b"].born and births["b"].lost


@pytest.mark.asyncio
async def test_what_a_directory_is_survives_its_process() -> None:
    engines = {name: MemoryEngine() for name in FOUNDERS}
    births = {name: new(name, engine) for name, engine in engines.items()}
    await settle(births)
    again = new("a", engines["a"], seed=9)
    assert again.born and not again.lost and again.certificate == births["a"].certificate


@pytest.mark.asyncio
async def test_a_nonce_is_kept_also_when_nothing_else_was_certain() -> None:
    engine = MemoryEngine()
    first = new("a", engine)
    await first.prepare()
    assert new("a", engine, seed=9).hello() == first.hello()


@pytest.mark.asyncio
async def test_a_directory_with_replicas_from_before_certificates_is_born() -> None:
    engine = MemoryEngine()
    batch = WriteBatch()
    batch.put(keyspace.hard_state_key(1), b"x")
    await engine.commit(batch)
    old = new("a", engine)
    assert old.born and not old.lost
    empty = new("b")
    await settle({"a": old, "b": empty})
    assert empty.lost


def test_a_server_that_did_not_found_the_cluster_has_nothing_to_find_out() -> None:
    stranger = new("d")
    assert stranger.born and not stranger.lost


def test_any_certificate_outweighs_the_unborn() -> None:
    heard = {"b": Hello(b"2", None), "c": Hello(b"3", {"a": b"0", "b": b"2", "c": b"3"})}
    assert verdict("a", b"1", FOUNDERS, heard) == {"a": b"0", "b": b"2", "c": b"3"}
    assert verdict("a", b"1", FOUNDERS, {"b": Hello(b"2", None)}) is None
