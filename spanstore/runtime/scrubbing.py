"""The server's side of scrubbing: when a pass runs, how far it is, and what becomes of its findings."""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path

import msgspec

from f1common.clock import Clock
from f1common.priority import module_that_gives_way
from spanstore.engine.keyspace import SERVER
from spanstore.scrub.records import Finding
from spanstore.scrub.worker import Progress

_log = logging.getLogger(__name__)

STATE_FILE = "SCRUB"

_POLL_S = 1.0
_RETRY_US = 60_000_000
_STEPS_PER_SAVE = 16
_KEPT_FINDINGS = 20
_FATAL = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""Ends of a process that a damaged file can cause; others come from outside."""


class ScrubState(msgspec.Struct):
    """How scrubbing stands. ``position`` is where the pass under way goes on, in hexadecimal; empty without one.

    ``passes`` were completed in the life of this directory; ``records`` and ``bytes`` are of the pass under way or the
    last one; ``findings`` of all passes, the newest last.
    """

    passes: int = 0
    position: str = ""
    running: bool = False
    records: int = 0
    bytes: int = 0
    findings: list[str] = msgspec.field(default_factory=list)


class Scrubber:
    """Runs passes over one data directory, one at a time, each in a process of its own."""

    def __init__(
        self,
        data_dir: Path,
        *,
        map_bytes: int,
        bytes_per_s: int,
        every_us: int,
        clock: Clock,
        on_finding: Callable[[int, str], None],
    ) -> None:
        """``bytes_per_s`` 0 makes no passes but those asked for; ``on_finding`` is told (group, what is wrong)."""
        self._data_dir = data_dir
        self._map_bytes = map_bytes
        self._bytes_per_s = bytes_per_s
        self._every_us = every_us
        self._clock = clock
        self._on_finding = on_finding
        self._asked = 0
        self._wake = asyncio.Event()
        self._process: Process | None = None
        self.state = self._load()
        # A pass that was broken off goes on soon; a new one has time.
        self._next_us = self._now_us() + (_RETRY_US if self.state.position else every_us)

    def request(self, bytes_per_s: int = 0) -> int:
        """Begin a pass now, at another rate if given, and return how many will be complete when it is.

        A pass that is under way is not what was asked for: it began before.
        """
        self._asked = bytes_per_s or self._bytes_per_s or (1 << 62)
        self._wake.set()
        return self.state.passes + (2 if self.state.running else 1)

    async def run(self) -> None:
        """Make passes when they are due, until cancelled."""
        try:
            while True:
                if self._asked or (self._bytes_per_s and self._now_us() >= self._next_us):
                    rate, self._asked = self._asked or self._bytes_per_s, 0
                    completed = await self._pass(rate)
                    self._next_us = self._now_us() + (self._every_us if completed else _RETRY_US)
                    continue
                self._wake.clear()
                try:
                    async with asyncio.timeout(_POLL_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass  # look at the clock again
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def _pass(self, bytes_per_s: int) -> bool:
        state = self.state
        if not state.position:
            state.records = state.bytes = 0
        state.running = True
        module = module_that_gives_way("spanstore.scrub.worker")
        arguments = (str(self._data_dir), str(self._map_bytes), str(bytes_per_s), state.position)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *module, *arguments, stdin=DEVNULL, stdout=PIPE, limit=1 << 24
            )
        except OSError as error:
            _log.warning("the data cannot be scrubbed now: %s", error)
            state.running = False
            return False
        self._process = process
        completed = await self._follow(process)
        code = await process.wait()
        state.running = False
        if completed:
            state.passes += 1
            state.position = ""
            _log.info("scrubbed %d records in %d bytes of pages", state.records, state.bytes)
        elif -code in _FATAL:
            name = signal.Signals(-code).name
            self._found(Finding(SERVER, f"reading at key {state.position or 'start'} ended a process with {name}"))
            state.position = ""
        else:
            _log.warning("the scrub process ended with %d at key %s; it is tried again", code, state.position)
        self._save()
        return completed

    async def _follow(self, process: Process) -> bool:
        """Take in what the process tells until its end; True if it got to the end of the data."""
        steps = 0
        stream = process.stdout
        while stream is not None and (line := await stream.readline()):
            progress = msgspec.json.decode(line, type=Progress)
            self.state.position = progress.resume
            self.state.records += progress.records
            self.state.bytes += progress.bytes
            for finding in progress.findings:
                self._found(finding)
            if progress.done:
                return True
            steps += 1
            if steps % _STEPS_PER_SAVE == 0:
                self._save()
        return False

    def _found(self, finding: Finding) -> None:
        _log.error("scrubbing found damage: %s", finding)
        text = str(finding)
        if text not in self.state.findings:
            self.state.findings = [*self.state.findings, text][-_KEPT_FINDINGS:]
        self._on_finding(finding.group, finding.what)

    def _now_us(self) -> int:
        return self._clock.sample().boot_us

    def _load(self) -> ScrubState:
        try:
            state = msgspec.json.decode((self._data_dir / STATE_FILE).read_bytes(), type=ScrubState)
            state.running = False
            bytes.fromhex(state.position)
            return state
        except (OSError, msgspec.DecodeError, ValueError):
            return ScrubState()  # it only says where to go on

    def _save(self) -> None:
        scratch = self._data_dir / f"{STATE_FILE}.new"
        try:
            scratch.write_bytes(msgspec.json.encode(self.state))
            scratch.replace(self._data_dir / STATE_FILE)
        except OSError as error:
            _log.warning("cannot keep how far scrubbing is: %s", error)
