"""Named scenarios of the lock table as golden scripts: `tests/golden/txn/*.txt`.

A script is a list of blocks: comments (`#`), commands, a line `---` and what the commands answered. Transaction `t3`
has priority 3, so `t1` is older than `t2`; its waiting requests are called `t3#1`, `t3#2` and so on.

    t3: X a, S [b,d)        lock in the execution phase (policy WOUND_WAIT)
    t3: prepare X a         lock for a prepare (policy PREPARE)
    t3: logged              its prepare or commit is being logged: mark_prepared
    t3: release             committed or aborted
    t3: restore X a         a new leader rebuilds a prepared transaction
    t3: locks               what it holds
    cancel t3#1             one request gives up
    holders [a,c)           who holds locks there
    waiters                 who waits for whom

`python tests/unit/txn/test_lock_scripts.py --rewrite` writes the answers anew.
"""

import re
import sys
from pathlib import Path

import pytest

from spanstore.txn.locks import Acquired, LockMode, LockTable, Priority, Refused, Span, Waiting, WaitPolicy

SCRIPTS = sorted((Path(__file__).parents[2] / "golden" / "txn").glob("*.txt"))
MODES = {"S": LockMode.SHARED, "X": LockMode.EXCLUSIVE, "A": LockMode.APPEND}
LETTERS = {mode: letter for letter, mode in MODES.items()}


def parse_span(text: str) -> Span:
    if match := re.fullmatch(r"\[(\w+),(\w+)\)", text):
        return Span(match[1].encode(), match[2].encode())
    return Span(text.encode())


def parse_locks(text: str) -> list[tuple[Span, LockMode]]:
    return [(parse_span(span), MODES[mode]) for mode, span in re.findall(r"([SXA]) (\[\w+,\w+\)|\w+)", text)]


def show_span(span: Span) -> str:
    return span.start.decode() if span.end is None else f"[{span.start.decode()},{span.end.decode()})"


def names(txns: tuple[bytes, ...]) -> str:
    return " ".join(txn.decode() for txn in txns)


class Script:
    def __init__(self) -> None:
        self.table = LockTable()
        self.asked: dict[str, int] = {}
        self.clock = 0

    def command(self, line: str) -> str:
        self.clock += 1
        match line.split(maxsplit=1):
            case ["waiters"]:
                return self.waiters()
            case ["cancel", token]:
                return self.granted(self.table.cancel(token))
            case ["holders", span]:
                holders = self.table.holders_overlapping(parse_span(span))
                return "\n".join(
                    f"{holder.txn.decode()} {''.join(LETTERS[mode] for mode in holder.modes)}"
                    f"{' prepared' if holder.prepared else ''}"
                    for holder in holders
                )
            case [txn, rest] if txn.endswith(":"):
                return self.transaction(txn[:-1], rest)
            case _:
                raise ValueError(f"no command: {line}")

    def transaction(self, txn: str, rest: str) -> str:
        name, priority = txn.encode(), Priority(int(txn[1:]), b"")
        match rest.split(maxsplit=1):
            case ["logged"]:
                self.table.mark_prepared(name)
                return "ok"
            case ["release"]:
                return self.granted(self.table.release(name))
            case ["locks"]:
                return ", ".join(f"{LETTERS[mode]} {show_span(span)}" for span, mode in self.table.locks_of(name))
            case ["restore", locks]:
                self.table.restore_prepared(name, priority, parse_locks(locks))
                return "ok"
            case _:
                return self.acquire(txn, name, priority, rest)

    def acquire(self, txn: str, name: bytes, priority: Priority, rest: str) -> str:
        self.asked[txn] = self.asked.get(txn, 0) + 1
        prepare = rest.startswith("prepare ")
        result = self.table.acquire(
            name,
            priority,
            parse_locks(rest.removeprefix("prepare ")),
            policy=WaitPolicy.PREPARE if prepare else WaitPolicy.WOUND_WAIT,
            token=f"{txn}#{self.asked[txn]}",
            boot_us=self.clock,
        )
        match result:
            case Acquired():
                answer = "acquired"
            case Waiting():
                answer = f"waits for {names(result.blockers)}"
            case Refused():
                answer = f"refused because of {names(result.blockers)}"
        answer += f"; wounded {names(result.wounded)}" if result.wounded else ""
        answer += f"; dropped {' '.join(map(str, result.dropped))}" if result.dropped else ""
        return answer + (f"; granted {' '.join(map(str, result.granted))}" if result.granted else "")

    def granted(self, tokens: list[object]) -> str:
        return f"granted {' '.join(map(str, tokens))}" if tokens else "ok"

    def waiters(self) -> str:
        return "\n".join(
            f"{waiter.txn.decode()} {', '.join(f'{LETTERS[mode]} {show_span(span)}' for span, mode in waiter.requests)}"
            f" ({waiter.policy.value}, {waiter.waited_us} steps) waits for {names(waiter.blockers)}"
            for waiter in self.table.waiters(self.clock)
        )


def play(text: str) -> str:
    """Return the script with the answers that its commands get now."""
    script = Script()
    blocks = []
    for block in text.strip().split("\n\n"):
        head = block.split("\n---")[0]
        commands = [line for line in head.splitlines() if line and not line.startswith("#")]
        answers = [f"{answer}" for command in commands for answer in [script.command(command)] if answer]
        blocks.append("\n".join([head, "---", *answers]) if commands else head)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert play(text) == text, f"see the difference with `python {Path(__file__).name} --rewrite` and git diff"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 13


if __name__ == "__main__" and "--rewrite" in sys.argv:
    for script_path in SCRIPTS:
        script_path.write_text(play(script_path.read_text(encoding="utf-8")), encoding="utf-8")
