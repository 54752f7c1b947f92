"""Transactions driven step by step, each step printed: what the golden scripts are made of."""

from collections.abc import Iterator
from typing import Any

from f1.orchestrator import cells, protocol
from f1.orchestrator.protocol import Attempt
from f1.orchestrator.steps import (
    Acquire,
    Delete,
    GetVersions,
    NextTimestamp,
    Put,
    PutIfAbsent,
    Release,
    Step,
    Steps,
    Validate,
    Version,
)
from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1common.orchestrator.lock_table import LockConfig, LockTable, Token
from tests.sim.orchestrator_world import Store

LEASE_US = 1_000_000


class Script:
    """Runs the commands of a script; `run` yields what happened, line by line."""

    def __init__(self) -> None:
        self.store = Store()
        self.locks = LockTable(LockConfig(LEASE_US, 10 * LEASE_US), 1)
        self.now = 0
        self.ts = 0
        self.requests = 0
        self.attempts: dict[str, Attempt] = {}
        self.lines: list[str] = []
        self.paused: dict[str, tuple[Steps[Any], Step]] = {}

    def command(self, line: str) -> list[str]:
        self.lines = []
        who, _, rest = line.partition(": ")
        words = rest.split() if rest else who.split()
        if not rest:
            self._world(words)
        else:
            self._transaction(who, words)
        return self.lines

    def _world(self, words: list[str]) -> None:
        match words:
            case ["time", seconds]:
                self.now += int(float(seconds) * 1_000_000)
            case ["timestamp", number]:
                self.ts = int(number) - 1
            case ["lock-service-restarts"]:
                self.locks = LockTable(LockConfig(LEASE_US, 10 * LEASE_US), self.locks.incarnation + 1)
            case ["show"]:
                self._show()
            case _:
                raise ValueError(words)

    def _show(self) -> None:
        for key in sorted(self.store.cells):
            for ts, value in sorted(self.store.cells[key].items(), reverse=True):
                if key < cells.table_prefix("a")[:1]:
                    decision = protocol.decode_decision(value)
                    self.lines.append(f"transaction {protocol.transaction_of(key)} | {decision}")
                else:
                    self.lines.append(f"{self._name(key)} | {ts} | {show(value)}")

    def _transaction(self, who: str, words: list[str]) -> None:
        known: dict[int, int] = {}
        match words:
            case ["start"]:
                self.attempts[who] = self._run(who, protocol.start(self.ts))
            case ["get", row, column]:
                (seen,) = self._run(who, protocol.read_cells(self.attempts[who], [key_of(row, column)], known))
                self.lines.append(f"-> {show(seen.value)}")
            case ["set", row, column, value]:
                attempt = self.attempts[who]
                attempt.writes[key_of(row, column)] = value.encode()
                attempt.rows[key_of(row, column)] = cells.row_prefix("accounts", row)
            case ["commit", *rest]:
                attempt = self.attempts[who]
                if "unchecked" in rest:
                    attempt.rows.clear()
                until = rest[rest.index("until") + 1] if "until" in rest else ""
                self._run(who, self._commit(attempt, known), until)
            case ["go-on", *rest]:
                steps, step = self.paused.pop(who)
                self._go(who, steps, step, rest[1] if rest else "")
            case _:
                raise ValueError(words)

    def _commit(self, attempt: Attempt, known: dict[int, int]) -> Steps[None]:
        try:
            committed = yield from protocol.commit(attempt, known)
        except F1Error as error:
            self.lines.append(f"-> {error.code}")
            return
        self.lines.append(f"-> {'committed' if committed else 'aborted'}")

    def _run(self, who: str, steps: Steps[Any], until: str = "") -> Any:
        return self._go(who, steps, next(steps), until)

    def _go(self, who: str, steps: Steps[Any], step: Step, until: str) -> Any:
        while True:
            if until and until == type(step).__name__:
                self.paused[who] = steps, step
                self.lines.append(f"(stands still before {until})")
                return None
            try:
                step = steps.send(self._perform(step))
            except StopIteration as end:
                return end.value

    def _perform(self, step: Step) -> Any:
        answer = self._answer(step)
        self.lines.append(f"{' '.join(self._words(step))}{said(answer)}")
        return answer

    def _answer(self, step: Step) -> Any:
        match step:
            case GetVersions(asked):
                return [self.store.get(key, below) for key, below in asked]
            case Put(writes):
                for write in writes:
                    self.store.put(write)
            case PutIfAbsent(write):
                return self.store.put_if_absent(write)
            case Delete(versions):
                for key, ts in versions:
                    self.store.delete(key, ts)
            case Acquire(locks, bound):
                self.requests += 1
                name = str(self.requests).encode()
                done = self.locks.acquire(name, locks, bound, self.now, self.now + 1)
                while not done:  # nobody else acts: who is in the way lapses
                    self.now += LEASE_US // 10
                    if self.lines[-1:] != ["(waits)"]:
                        self.lines.append("(waits)")
                    # Who waits is alive: its refresher runs.
                    self.locks.refresh(
                        [a.lease for who, a in self.attempts.items() if who not in self.paused], self.now
                    )
                    self.locks.withdraw(name, self.now)
                    self.requests += 1
                    name = str(self.requests).encode()
                    done = [d for d in self.locks.acquire(name, locks, bound, self.now, self.now + 1) if d.token]
                return done[-1].token
            case Validate(tokens):
                return all(self.locks.validate(tokens, self.now)[0])
            case Release(tokens):
                self.locks.release(tokens, self.now)
            case NextTimestamp():
                self.ts += 1
                return self.ts
            case _:
                raise ValueError(step)
        return None

    def _words(self, step: Step) -> Iterator[str]:
        match step:
            case GetVersions(asked):
                yield "read"
                yield ", ".join(
                    f"{self._name(key)}{'' if below == protocol.EVERYTHING else f' below {below}'}"
                    for key, below in asked
                )
            case Put(writes):
                yield "write"
                yield ", ".join(f"{self._name(w.key)} at {w.ts} = {show(w.value)}" for w in writes)
            case PutIfAbsent(write):
                yield "put if absent"
                yield f"{self._name(write.key)} = {protocol.decode_decision(write.value)}"
            case Delete(versions):
                yield "remove"
                yield ", ".join(f"{self._name(key)} at {ts}" for key, ts in versions)
            case Acquire(locks, bound):
                yield "lease" if bound is not None else "lock"
                yield (
                    ", ".join(f"{lock.mode.name.lower()} {self._name(lock.name)}" for lock in locks) or f"above {bound}"
                )
            case Validate():
                yield "validate"
            case Release():
                yield "release"
            case NextTimestamp():
                yield "timestamp"
            case _:
                raise ValueError(step)

    def _name(self, key: bytes) -> str:
        if key < cells.table_prefix("a")[:1]:
            return f"transaction {protocol.transaction_of(key)}"
        parts = tuples.decode(key)
        return f"row {parts[2]!s}" if len(parts) == 3 else f"{parts[2]!s}.{parts[3]!s}"


def key_of(row: str, column: str) -> bytes:
    return cells.cell_key("accounts", row, column)


def show(value: bytes | None) -> str:
    return "nothing" if value is None else value.decode()


def said(answer: Any) -> str:
    match answer:
        case None | Token():
            return ""
        case bool():
            return f": {'held' if answer else 'lost'}"
        case int():
            return f": {answer}"
        case bytes():
            return f": {protocol.decode_decision(answer)}"
        case [*versions]:
            return ": " + ", ".join(_version(version) for version in versions)
        case _:
            raise ValueError(answer)


def _version(version: Version | None) -> str:
    if version is None:
        return "none"
    if version.ts == 0:
        return str(protocol.decode_decision(version.value))
    return f"{show(version.value)} at {version.ts}"
