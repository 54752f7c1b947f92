"""Named scenarios of the Paxos core as golden scripts: `tests/golden/paxos/*.txt`.

A script is a list of blocks: comments (`#`), commands, a line `---` and what happened. Nothing moves by itself:
messages wait on their way and writes wait for their sync until a command says so. Lease 1000 ms, heartbeat 100 ms,
election timeout 300 ms, no jitter; all clocks agree. Payloads are the words proposed; `1a` is the ballot of round 1 of
replica a.

    voters a b c             start a group; options as key=value
    wait 100                 let milliseconds pass
    tick a                   let a look at its clock
    propose a x y            propose to a, in one turn
    sync a                   the writes of a so far are durable
    deliver a b [n]          the (first n) messages on their way from a to b arrive, each in a turn
    drop a b | repeat a b    they are lost | they will arrive twice
    settle                   syncs and deliveries until nothing is on its way, unseen
    elect a                  tick a, settle
    crash a | restart a      what was not synced is lost | start from disk
    transfer a b             a gives up in favour of b
    ceiling a 5000           a wants a timestamp ceiling in ms
    add a d                  the leader a makes a new replica at server d a learner; its name is d# and the version
    promote a d#1            the leader a makes the learner d#1 a voter; demote a b: the other way round
    remove a b               the leader a proposes the configuration without b
    newcomer d#1             d#1 begins, with nothing
    install d#1 from a       d#1 restarts with the state of a as of what a has applied
    lead a no | lead a yes   a may not stand, or may again
    show [a]                 state

`python tests/unit/paxos/test_scripts.py --rewrite` writes the answers anew.
"""

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from f1common.clock import Now, TTInterval
from f1common.errors import F1Error
from spanstore.paxos import (
    Accept,
    Accepted,
    Ballot,
    Configuration,
    Effects,
    LogEntry,
    Message,
    OfferState,
    PaxosConfig,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    Removed,
    Replica,
    TransferLeadership,
)
from spanstore.paxos.configuration import decode_configuration
from spanstore.testing.paxos_nodes import Disk

SCRIPTS = sorted((Path(__file__).parents[2] / "golden" / "paxos").glob("*.txt"))
MS = 1000
SHOWN = ("leads ", "no longer leads", "was removed", "is offered ")
"""Settling is unseen but for these."""


class Steady(random.Random):
    """No jitter: whoever is ticked first is first."""

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


def ballot_name(ballot: Ballot) -> str:
    return f"{ballot.round}{ballot.replica}" if ballot.round else "-"


def at(index: int, ballot: Ballot) -> str:
    return f"{index}/{ballot_name(ballot)}"


def words(entries: tuple[LogEntry, ...] | list[LogEntry]) -> str:
    return " ".join(f"{entry.index}:{word(entry.payload)}/{ballot_name(entry.ballot)}" for entry in entries)


def word(payload: bytes) -> str:
    configuration = decode_configuration(payload)
    return payload.decode() if configuration is None else members(configuration)


def members(configuration: Configuration) -> str:
    """Version, voters and, in brackets, learners."""
    learners = f"({','.join(configuration.learners)})" if configuration.learners else ""
    return f"v{configuration.version}={','.join(configuration.voters)}{learners}"


def show_message(message: Message) -> str:
    name = f"{type(message).__name__} {ballot_name(message.ballot)}"
    match message:
        case PreVote():
            return f"{name} log {at(message.last_index, message.last_ballot)}"
        case Prepare():
            released = f" released {ballot_name(message.released)}" if message.released.round else ""
            return f"{name} log {at(message.last_index, message.last_ballot)}{released}"
        case PreVoteReply():
            return f"{name} {'yes' if message.granted else f'no, promised {ballot_name(message.promised)}'}"
        case Promise():
            if not message.granted:
                return f"{name} no, promised {ballot_name(message.promised)}"
            return f"{name} yes, before {ballot_name(message.previous)}, ceiling {message.ceiling // MS}"
        case Accept():
            cut = f" cut {message.truncate_below}" if message.truncate_below > 0 else ""
            return (
                f"{name} after {at(message.prev_index, message.prev_ballot)} [{words(message.entries)}] "
                f"chosen {message.chosen_index} ceiling {message.ceiling // MS}{cut}"
            )
        case Accepted():
            if message.promised != message.ballot:
                return f"{name} no, promised {ballot_name(message.promised)}"
            return f"{name} up to {message.match_index}" if message.ok else f"{name} gap, try {message.hint}"
        case OfferState():
            return f"{name} log from {message.first_index}"
        case Removed():
            return f"{name} by version {message.version}"
        case TransferLeadership():
            return f"{name} highest {message.highest_ts // MS}"


def show_write(effects: Effects) -> str:
    parts: list[str] = []
    if effects.hard_state is not None:
        parts.append(f"promised {ballot_name(effects.hard_state.promised)} ceiling {effects.hard_state.ceiling // MS}")
    if effects.truncate_from is not None:
        parts.append(f"delete from {effects.truncate_from}")
    if effects.append:
        parts.append(f"append {words(effects.append)}")
    if effects.truncate_below is not None:
        parts.append(f"delete below {effects.truncate_below}")
    return ", ".join(parts)


class Script:
    """One group, moved by commands."""

    def __init__(self, replica: type[Replica] = Replica) -> None:
        self.kind = replica
        self.time = 0
        self.names: tuple[str, ...] = ()
        self.config = PaxosConfig()
        self.disks: dict[str, Disk] = {}
        self.replicas: dict[str, Replica] = {}
        self.writing: dict[str, list[tuple[Effects, int, Configuration | None]]] = {}
        self.ways: dict[tuple[str, str], list[Message]] = {}
        self.applied: dict[str, int] = {}
        self.states: dict[str, Configuration | None] = {}
        self.told: set[str] = set()
        self.out: list[str] = []

    def command(self, line: str) -> str:
        self.out = []
        match line.split():
            case ["voters", *rest]:
                self.voters(rest)
            case ["wait", ms]:
                self.time += int(ms) * MS
            case ["tick", name]:
                self.replicas[name].tick(self.now())
                self.turn(name)
            case ["propose", name, *payloads]:
                for payload in payloads:
                    if self.replicas[name].propose(payload.encode()) is None:
                        self.out.append("not leader")
                self.turn(name)
            case ["sync", name]:
                self.sync(name)
            case ["deliver", sender, receiver, *count]:
                self.deliver(sender, receiver, int(count[0]) if count else None)
            case ["drop", sender, receiver]:
                self.ways[sender, receiver] = []
            case ["repeat", sender, receiver]:
                self.ways[sender, receiver] *= 2
            case ["settle"]:
                self.settle()
            case ["elect", name]:
                self.command(f"tick {name}")
                self.settle()
            case ["crash", name]:
                del self.replicas[name]
            case ["restart", name]:
                self.start(name)
            case ["transfer", name, to]:
                done = self.replicas[name].transfer(to, self.time, self.now())
                self.out.append("done" if done else "refused")
                self.turn(name)
            case ["ceiling", name, ms]:
                self.replicas[name].want_ceiling(int(ms) * MS)
                self.turn(name)
            case ["add" | "promote" | "demote" | "remove" as step, name, member]:
                self.change(step, name, member)
            case ["newcomer", name]:
                self.disks[name] = Disk()
                self.start(name)
            case ["install", name, "from", source]:
                self.install(name, self.disks[source])
            case ["lead", name, word]:
                self.replicas[name].set_may_lead(word == "yes")
            case ["show", *names]:
                for name in names or sorted(self.replicas):
                    self.show(name)
            case _:
                raise ValueError(f"no command: {line}")
        return "\n".join(self.out)

    def now(self) -> Now:
        return Now(self.time, TTInterval(self.time, self.time))

    def voters(self, words: list[str]) -> None:
        self.names = tuple(word for word in words if "=" not in word)
        options = {key: int(value) for key, _, value in (word.partition("=") for word in words if "=" in word)}
        self.config = PaxosConfig(
            lease_us=1000 * MS, heartbeat_us=100 * MS, election_timeout_us=300 * MS, retry_us=300 * MS, **options
        )
        for name in self.names:
            self.disks[name] = Disk(Configuration(0, self.names))
            self.start(name)
        self.settle()

    def start(self, name: str) -> None:
        disk = self.disks[name]
        self.writing[name] = []
        self.applied[name] = disk.applied
        self.states[name] = disk.configuration
        self.replicas[name] = self.kind(
            group=1,
            me=name,
            configuration=disk.configuration,
            config=self.config,
            log=disk,
            hard_state=disk.hard_state,
            applied_index=disk.applied,
            now=self.now(),
            rng=Steady(0),
        )
        self.turn(name)

    def turn(self, name: str) -> None:
        replica = self.replicas[name]
        effects = replica.flush(self.now())
        if effects.became_leader:
            self.out.append(f"{name} leads {ballot_name(replica.ballot)} above {replica.ceiling_floor // MS}")
        if effects.lost_leadership:
            self.out.append(f"{name} no longer leads")
        self.post(name, effects.send_now)
        if effects.writes():
            self.out.append(f"{name} writes {show_write(effects)}")
        chosen = replica.take_chosen(1 << 20)
        if chosen:
            self.applied[name] = chosen[-1].index
            for entry in chosen:
                self.states[name] = decode_configuration(entry.payload) or self.states[name]
            self.out.append(f"{name} takes {words(chosen)}")
        if effects.writes() or effects.send_synced or chosen:
            self.writing[name].append((effects, self.applied[name], self.states[name]))
            if not effects.writes() and len(self.writing[name]) == 1:
                self.sync(name)

    def post(self, name: str, messages: list[tuple[str, Message]]) -> None:
        for to, message in messages:
            self.out.append(f"{name}->{to} {show_message(message)}")
            self.ways.setdefault((name, to), []).append(message)

    def sync(self, name: str) -> None:
        jobs, self.writing[name] = self.writing[name], []
        for effects, applied, state in jobs:
            self.disks[name].write(effects, applied, state)
            self.post(name, effects.send_synced)
            self.replicas[name].synced(effects, self.now())
            self.replicas[name].applied(applied)
            self.turn(name)

    def deliver(self, sender: str, receiver: str, count: int | None = None) -> None:
        way = self.ways.get((sender, receiver), [])
        messages, self.ways[sender, receiver] = way[:count], [] if count is None else way[count:]
        for message in messages:
            if receiver in self.replicas:
                self.replicas[receiver].step(sender, message, self.now())
                self.turn(receiver)
                self.tell(receiver)

    def tell(self, name: str) -> None:
        """Say what the driver of a replica would have to see to."""
        replica = self.replicas[name]
        if replica.removed and name not in self.told:
            self.told.add(name)
            self.out.append(f"{name} was removed")
        if replica.offered_state is not None:
            source, first = replica.offered_state
            self.out.append(f"{name} is offered the state of {source}, from {first}")

    def change(self, step: str, name: str, member: str) -> None:
        replica = self.replicas[name]
        before = replica.configuration
        match step:
            case "add":
                after = before.with_learner(member)
            case "promote":
                after = before.with_voter(member)
            case "demote":
                after = before.with_demoted(member)
            case _:
                after = before.without(member)
        try:
            replica.change(after, self.now())
        except F1Error as error:
            self.out.append(f"refused: {error.message}")
        else:
            self.turn(name)

    def install(self, name: str, source: Disk) -> None:
        border = source.log[source.applied - source.first]
        self.disks[name].install(source.applied, border, source.configuration)
        self.start(name)

    def settle(self) -> None:
        for _ in range(100):
            busy = [name for name in sorted(self.replicas) if self.writing[name]]
            for name in busy:
                self.sync(name)
            ways = [way for way, messages in sorted(self.ways.items()) if messages]
            for way in ways:
                self.deliver(*way)
            if not busy and not ways:
                self.out = [line for line in self.out if any(f" {word}" in line for word in SHOWN)]
                return
        raise RuntimeError("the group does not come to rest")

    def show(self, name: str) -> None:
        replica, disk = self.replicas[name], self.disks[name]
        parts = [f"{name} {replica.role.value} {ballot_name(replica.ballot)} leader {replica.leader or '-'}"]
        parts.append(f"log [{words(disk.log)}] chosen {replica.chosen_index}")
        if replica.configuration.version:
            parts.append(members(replica.configuration))
        if replica.usable_ceiling:
            parts.append(f"usable {replica.usable_ceiling // MS}")
        if replica.lease_valid(self.time):
            parts.append("lease")
        self.out.append(", ".join(parts))


def run(text: str, replica: type[Replica] = Replica) -> str:
    """Run a script; return it with the answers that it gives now."""
    script = Script(replica)
    blocks: list[str] = []
    for block in text.rstrip("\n").split("\n\n"):
        asked, _, _ = block.partition("\n---")
        commands = [line for line in asked.splitlines() if line and not line.startswith("#")]
        answers = [answer for line in commands if (answer := script.command(line))]
        blocks.append("\n".join([asked, "---", *answers]) if commands else asked)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text()
    assert run(text) == text


class CountsOldBallots(Replica):
    """Takes what is on a quorum of disks for chosen, whatever ballot it was proposed under."""

    def _on_accepted(self, sender: str, message: Accepted, now: Now) -> None:
        super()._on_accepted(sender, message, now)
        if self._leading is not None and message.ok:
            self._chosen = max(self._chosen, min(message.match_index, self._log.durable_index))


def test_counting_entries_of_older_ballots_loses_one() -> None:
    (path,) = [path for path in SCRIPTS if path.stem.startswith("only_entries_of_the_own_ballot")]
    text = path.read_text()
    assert run(text) == text and "a takes 1:x" not in text
    broken = run(text, CountsOldBallots)
    assert "a takes 1:x/1a" in broken, "x was chosen"
    assert "b leader 4b leader b, log [1:y/2b 2:w/4b] chosen 2" in broken, "and y is chosen in its place"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 25


if __name__ == "__main__" and sys.argv[1:] == ["--rewrite"]:
    for script_path in SCRIPTS:
        script_path.write_text(run(script_path.read_text()))
