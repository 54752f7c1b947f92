"""Scrubbing: sound data give no findings, and each kind of damage is found, in use and at rest."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from f1common.clock import SameHostClock
from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.engine.directory import DATA_FILE
from spanstore.engine.keyspace import SERVER, Subspace
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.pages import PageFile
from spanstore.mvcc.versions import version_key
from spanstore.runtime.scrubbing import Scrubber
from spanstore.scrub.offline import check_directory
from spanstore.scrub.online import OnlineScrub, Step
from spanstore.scrub.records import check_record
from spanstore.testing import bitrot

MAP = 1 << 28


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    bitrot.make(path, 1)
    return path


def write(path: Path, change: Callable[[WriteBatch], None]) -> None:
    async def body() -> None:
        engine = LmdbEngine.open(path, cluster="rot", server="span-a1", map_bytes=MAP)
        batch = WriteBatch()
        change(batch)
        await engine.commit(batch)
        await engine.close()

    asyncio.run(body())


def online(path: Path, max_bytes: int = 1 << 20) -> list[Step]:
    scrub = OnlineScrub(path, MAP)
    steps = [scrub.step(b"", max_bytes)]
    while steps[-1].resume is not None:
        steps.append(scrub.step(steps[-1].resume, max_bytes))
    steps[-1].findings += scrub.groups()
    scrub.close()
    return steps


def test_sound_data_give_no_findings_and_every_record_is_seen_once(directory: Path) -> None:
    report = check_directory(directory)
    assert not report.findings
    assert report.server == "span-a1" and report.pages > 500
    for max_bytes in (4_096, 1 << 16, 1 << 30):
        steps = online(directory, max_bytes)
        assert not any(step.findings for step in steps)
        assert sum(step.records for step in steps) == report.records
    assert len(online(directory, 4_096)) > 20


def scrubber(path: Path, findings: list[tuple[int, str]]) -> Scrubber:
    return Scrubber(
        path,
        map_bytes=MAP,
        bytes_per_s=0,
        every_us=1,
        clock=SameHostClock(0),
        on_finding=lambda group, what: findings.append((group, what)),
    )


async def one_pass(scrub: Scrubber, bytes_per_s: int) -> None:
    task = asyncio.create_task(scrub.run())
    passes = scrub.request(bytes_per_s)
    while scrub.state.passes < passes:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_scrubbing_beside_a_writer_gives_no_findings(directory: Path) -> None:
    """Both meta pages are overwritten all the time, and pages are reused as soon as no view has them."""

    async def body() -> None:
        engine = LmdbEngine.open(directory, cluster="rot", server="span-a1", map_bytes=MAP)
        findings: list[tuple[int, str]] = []
        scrub = scrubber(directory, findings)
        # Slow enough for a good many commits and fast enough for a test.
        task = asyncio.create_task(one_pass(scrub, 8 << 20))
        turn = 0
        while not task.done():
            batch = WriteBatch()
            for i in range(20):
                batch.put(keyspace.meta_key(2, f"{turn * 7 % 50}/{i}"), bytes(turn % 3_000))
            await engine.commit(batch)
            turn += 1
        await task
        assert turn > 20 and not findings and scrub.state.records > 1_000
        await engine.close()

    asyncio.run(body())


def test_what_scrubbing_finds_is_told_and_kept(directory: Path) -> None:
    key = keyspace.meta_key(3, "name")
    write(directory, lambda batch: batch.ops.append((0, key, b"not sealed")))
    findings: list[tuple[int, str]] = []
    asyncio.run(one_pass(scrubber(directory, findings), 1 << 40))
    assert [group for group, _ in findings] == [3]
    again = scrubber(directory, findings)
    assert again.state.passes == 1 and len(again.state.findings) == 1 and key.hex() in again.state.findings[0]


def test_a_pass_that_was_broken_off_goes_on_where_it_was(directory: Path) -> None:
    """And a process that ends for no reason of the data is no finding."""

    async def body() -> None:
        findings: list[tuple[int, str]] = []
        first = scrubber(directory, findings)
        task = asyncio.create_task(first.run())
        first.request(1 << 20)
        while not first.state.position:
            await asyncio.sleep(0.01)
        process = first._process
        assert process is not None
        process.kill()
        while first.state.running:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        second = scrubber(directory, findings)
        assert second.state.position == first.state.position != "" and second.state.passes == 0
        await one_pass(second, 1 << 40)
        assert second.state.passes == 1 and not findings

    asyncio.run(body())


@pytest.mark.parametrize("space", list(Subspace))
def test_a_damaged_record_of_any_kind_is_found_and_laid_to_its_group(directory: Path, space: Subspace) -> None:
    key = {
        Subspace.LOG: keyspace.log_key(3, 170),
        Subspace.DATA: version_key(3, b"\x17new", 5),
        Subspace.HARD_STATE: keyspace.hard_state_key(3),
        Subspace.APPLIED: keyspace.applied_key(3),
    }.get(space, keyspace.prefix(3, space) + b"name")
    # What stands there is no record of this kind, whatever its checksum.
    write(directory, lambda batch: batch.ops.append((0, key, b"\xc1 not what was written")))
    findings = check_directory(directory).findings
    assert {finding.group for finding in findings} == {3} and key.hex() in {finding.key for finding in findings}
    found = [f for step in online(directory) for f in step.findings]
    assert {f.group for f in found} == {3} and key.hex() in {f.key for f in found}


def test_a_lost_promise_and_a_gap_in_the_log_are_found(directory: Path) -> None:
    write(directory, lambda batch: batch.delete(keyspace.hard_state_key(2)))
    write(directory, lambda batch: batch.delete(keyspace.log_key(3, 160)))
    texts = [str(finding) for finding in check_directory(directory).findings]
    assert len(texts) == 2
    assert any("group 2" in text and "promised" in text for text in texts)
    assert any("group 3" in text and "160 is missing" in text for text in texts)
    assert any("promised" in str(f) for step in online(directory) for f in step.findings)


def test_a_damaged_page_concerns_all_and_the_rest_is_still_read(directory: Path) -> None:
    kinds = bitrot.kinds(directory)
    leaf = next(page for page, kind in kinds.items() if kind == "leaf")
    bitrot.flip(directory, leaf, 12, 1)
    assert any(finding.group == SERVER for finding in check_directory(directory).findings)
    steps = online(directory, 1 << 16)
    found = [f for step in steps for f in step.findings]
    assert found[0].group == SERVER and f"page {leaf}" in str(found[0])
    assert sum(step.records for step in steps) > 500


@pytest.mark.parametrize("page", [0, 1])
def test_a_meta_page_that_lmdb_refuses_is_found(page: int, directory: Path) -> None:
    bitrot.flip(directory, page, 91, 3)
    assert check_directory(directory).findings
    with pytest.raises(F1Error) as caught:
        LmdbEngine.open(directory, cluster="rot", server="span-a1", map_bytes=MAP)
    assert caught.value.code is Code.DATA_CORRUPTION


def test_a_free_page_that_is_in_use_is_found(directory: Path) -> None:
    """LMDB would write over it: nothing is wrong yet, but will be."""
    kinds = bitrot.kinds(directory)
    own = next(page for page, kind in kinds.items() if kind == "free list")
    pages = PageFile(directory / DATA_FILE)
    data = bytearray(pages.read(own, 1, 4096))
    pages.close()
    used = next(page for page, kind in kinds.items() if kind == "leaf")
    free = {page for page, kind in kinds.items() if kind == "free"}
    at = next(at for at in range(4088, 16, -2) if int.from_bytes(data[at : at + 8], "little") in free)
    data[at : at + 8] = used.to_bytes(8, "little")
    with (directory / DATA_FILE).open("r+b") as stream:
        stream.seek(own * 4096)
        stream.write(data)
    assert any("free" in str(finding) for finding in check_directory(directory).findings)


def test_a_directory_in_use_or_without_data_is_refused(directory: Path, tmp_path: Path) -> None:
    async def body() -> None:
        engine = LmdbEngine.open(directory, cluster="rot", server="span-a1", map_bytes=MAP)
        with pytest.raises(F1Error) as caught:
            check_directory(directory)
        assert caught.value.code is Code.BAD_DATA_DIR
        await engine.close()

    asyncio.run(body())
    with pytest.raises(F1Error) as caught:
        check_directory(tmp_path)
    assert caught.value.code is Code.NOT_FOUND


def test_records_are_judged_by_form_too() -> None:
    assert check_record(b"ab", b"") is not None
    good = msgspec.msgpack.encode((1, 2, 3))
    batch = WriteBatch()
    batch.put(keyspace.applied_key(1), good)
    batch.put(keyspace.outcome_key(1, b"t"), good)
    ((_, applied, first), (_, outcome, second)) = batch.ops
    assert check_record(applied, first) is None
    assert check_record(outcome, second) is not None


@pytest.mark.long
def test_thousands_of_bits_that_rot_are_noticed_or_harmless(tmp_path: Path) -> None:
    for seed in range(10):
        path = tmp_path / f"rot-{seed}"
        bitrot.make(path, seed)
        assert [verdict for verdict in bitrot.try_flips(path, seed, 300) if not verdict.acceptable] == []


def test_bits_that_rot_are_noticed_or_harmless(tmp_path: Path) -> None:
    """A few here; `python -m spanstore.testing.bitrot` and the long tests flip thousands."""
    path = tmp_path / "rot"
    bitrot.make(path, 7)
    verdicts = list(bitrot.try_flips(path, 7, 24))
    assert [verdict for verdict in verdicts if not verdict.acceptable] == []
    assert {verdict.kind for verdict in verdicts} == {"meta", "branch", "leaf", "large value", "free", "free list"}
    assert sum(verdict.read == bitrot.DETECTED for verdict in verdicts) > 5
