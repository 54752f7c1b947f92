"""Scrubbing an environment that a spanserver is writing, in steps that hold no view for long."""

from dataclasses import dataclass, field
from pathlib import Path

from f1common.errors import F1Error
from spanstore.engine.directory import DATA_FILE
from spanstore.engine.keyspace import MAX_GROUP, SERVER
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.engine.lmdb_reader import LmdbReader
from spanstore.engine.pages import Fault, Meta, PageFile, Walk
from spanstore.group.storage import check_records
from spanstore.scrub.records import Finding, check_record, group_of

_TRIES = 10


@dataclass(slots=True)
class Step:
    """What one step saw. ``resume`` is where the next one begins, None at the end of the data."""

    resume: bytes | None
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


class OnlineScrub:
    """Walks over one environment. Raises OSError and EngineFailed when the file cannot be read at all."""

    def __init__(self, path: Path, map_bytes: int) -> None:
        self._engine = LmdbEngine.open_read_only(path, map_bytes=map_bytes)
        self._pages = PageFile(path / DATA_FILE)

    def step(self, start: bytes, max_bytes: int) -> Step:
        """Check pages and records from the key ``start`` on, until ``max_bytes`` of pages were read.

        What is found wrong is looked at again in a view of its own: a page in memory may be wrong by itself, and a
        replica is not given up for that.
        """
        found = self._once(start, max_bytes)
        if not found.findings:
            return found
        again = self._once(start, max_bytes)
        again.bytes += found.bytes
        return again

    def groups(self) -> list[Finding]:
        """Check of every group whether the records are there that it cannot do without."""
        findings: list[Finding] = []
        start = b""
        while True:
            with self._engine.snapshot() as view:
                first = view.first_key(start)
                group = group_of(first) if first is not None else SERVER
                if group == SERVER:
                    return findings
                try:
                    check_records(view, group)
                except F1Error as error:
                    findings.append(Finding(group, error.message, error.details.get("key", "")))
            if group >= MAX_GROUP:
                return findings
            start = (group + 1).to_bytes(2, "big")

    def _once(self, start: bytes, max_bytes: int) -> Step:
        begun = self._pages.bytes_read
        step = Step(None)
        with self._engine.snapshot() as view:
            meta = self._meta_of(view)
            if meta is None:
                step.findings.append(Finding(SERVER, "no meta page describes the state that LMDB reads"))
                return step
            for found in Walk(self._pages, meta, meta.main).leaves(start):
                if isinstance(found, Fault):
                    step.findings.append(Finding(SERVER, str(found), found.low.hex()))
                else:
                    self._leaf(found.items, start, step)
                step.resume = found.high
                if step.resume is None or self._pages.bytes_read - begun >= max_bytes:
                    break
            else:
                step.resume = None
        step.bytes = self._pages.bytes_read - begun
        return step

    @staticmethod
    def _leaf(items: list[tuple[bytes, bytes]], start: bytes, step: Step) -> None:
        for key, stored in items:
            if key >= start:
                step.records += 1
                damaged = check_record(key, stored)
                if damaged is not None:
                    step.findings.append(damaged)

    def _meta_of(self, view: LmdbReader) -> Meta | None:
        """Return the meta page of the state that ``view`` pins; each commit overwrites the older of the two."""
        for _ in range(_TRIES):
            for meta in self._pages.metas():
                if meta is not None and meta.transaction == view.transaction:
                    return meta
            view.renew()
        return None

    def close(self) -> None:
        """Let go of the environment."""
        self._pages.close()
        self._engine.release()
