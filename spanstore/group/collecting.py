"""The leader's side of garbage collection: raise the mark, then go over the group in small steps.

A *pass* goes once over the versions, the outcome records and the finished records of the group. Each step looks at a
bounded number of engine items, in the view of a turn, and proposes one command with what it found; the next one waits
until that is applied, and for a pause, so that commits go on beside it. Where a pass stands is in the replicated record
(:class:`~spanstore.group.garbage.Collected`), so that the next leader goes on from there.

What may go is decided elsewhere and comes as a :class:`~spanstore.group.requests.Collect`: the highest mark that the
pins allow, and which groups may still have old transactions prepared (:mod:`spanstore.runtime.collector`). Here it is
lowered to what this leader knows: the retention by its own clock, and its safe time, so that no commit comes at or
below the mark afterwards.
"""

from dataclasses import dataclass

from f1common.clock import Now
from f1common.errors import F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader
from spanstore.engine.keyspace import PREFIX_BYTES, Subspace
from spanstore.group.config import GroupConfig
from spanstore.group.state import Done, ReplicatedState
from spanstore.mvcc.collect import find_garbage
from spanstore.txn import outcomes
from spanstore.txn.commands import CollectCmd, GcOutcomesCmd, NewLeader, RaiseMarkCmd, Removal

Command = RaiseMarkCmd | CollectCmd | GcOutcomesCmd

_ITEMS = 1_000
"""Engine items that a step looks at: about a millisecond of work."""
_PAUSE_US = 50_000
_BUSY_PAUSE_US = 10_000
_CLEAN_PAUSE_US = 250_000
"""Between two steps: after one that found little, after one that found much, and where nothing has been found for
:data:`_CLEAN_STEPS` steps, so that a look at much that is clean costs commits next to nothing."""
_CLEAN_STEPS = 20
_STEPS_PER_COMMAND = 50
"""After so many steps that found nothing, the position is logged all the same."""
_PASSES_PER_WINDOW = 16
_SHORTEST_PASS_US = 20_000
_AFTER_DATA = bytes((Subspace.OUTCOME,))
_AFTER_OUTCOMES = bytes((Subspace.FINISHED,))
_END = bytes((Subspace.FINISHED + 1,))


@dataclass(frozen=True, slots=True)
class Permit:
    """What may be collected: see :class:`spanstore.group.requests.Collect`."""

    limit_ts: int = 0
    before_ts: int = 0
    unsettled: tuple[int, ...] = ()


class Collecting:
    """Garbage collection in one leader's term. Pure: views and clocks in, commands out."""

    def __init__(self, group: int, state: ReplicatedState, config: GroupConfig) -> None:
        self._group = group
        self._state = state
        self._config = config
        self._permit = Permit()
        self._position = state.collected.position
        self._in_pass = bool(self._position)
        self._pass_mark_ts = 0  # unknown of a pass that another leader began: it then counts for nothing
        self._pass_due_us = 0
        self._step_due_us = 0
        self._silent_steps = 0
        self._clean_steps = 0
        self._logged = self._in_pass
        self._has_records = True  # until a pass has found none
        self._in_flight: Command | None = None
        self.damaged: list[bytes] = []
        """Keys whose versions are left alone, because one of them is damaged."""

    def permit(self, limit_ts: int, before_ts: int, unsettled: tuple[int, ...]) -> None:
        """Take what may be collected from now on, which replaces what was permitted before."""
        self._permit = Permit(limit_ts, before_ts, unsettled)

    def next_step_us(self) -> int | None:
        """Return when there is something to do, in boot time; None if that depends on something else."""
        if self._in_flight is not None or not self._permit.before_ts:
            return None
        if self._in_pass:
            return self._step_due_us
        return self._pass_due_us if self._wants_pass() else None

    def step(self, reader: Reader, now: Now, safe_ts: int) -> Command | None:
        """Return the command to propose now, if any. ``safe_ts``: no commit comes at or below it any more."""
        due_us = self.next_step_us()
        if due_us is None or due_us > now.boot_us:
            return None
        if not self._in_pass:
            command = self._begin_pass(now, safe_ts)
        else:
            try:
                command = self._continue_pass(reader, now)
            except F1Error:
                # A damaged record: others find and mend it. This pass ends here, a later one begins anew.
                self.damaged = [*self.damaged, self._position][-_ITEMS:]
                self._in_pass, self._position, command = False, b"", None
                self._has_records = True
        self._in_flight = command
        self._logged = self._logged or command is not None
        return command

    def durable(self, done: Done) -> None:
        """An entry is applied and durable: if it was the last command, the next step may follow."""
        command = done.command
        if isinstance(command, RaiseMarkCmd | CollectCmd | GcOutcomesCmd):
            self._in_flight = None
        elif not isinstance(command, NewLeader):
            self._has_records = True

    # ------------------------------------------------------------------ passes

    def _wants_pass(self) -> bool:
        """Tell whether there may be garbage: something was written since all was clean, or there are old records."""
        return self._state.max_ts > self._state.collected.clean_ts or self._has_records

    def _begin_pass(self, now: Now, safe_ts: int) -> Command | None:
        config = self._config
        shortest_us = min(config.version_keep_us, config.outcome_keep_us) // _PASSES_PER_WINDOW
        self._pass_due_us = now.boot_us + max(shortest_us, _SHORTEST_PASS_US)
        self._step_due_us = now.boot_us
        self._has_records = self._logged = False
        self._in_pass, self._silent_steps = True, 0
        collected = self._state.collected
        mark_ts = min(self._permit.limit_ts, now.tt.earliest - config.version_keep_us, safe_ts)
        least_us = config.version_keep_us // _PASSES_PER_WINDOW
        # Without anything newer than the mark, nothing becomes garbage by raising it.
        raises = collected.mark_ts + least_us <= mark_ts and self._state.max_ts > collected.mark_ts
        self._pass_mark_ts = mark_ts if raises else collected.mark_ts
        clean = collected.clean_ts >= self._pass_mark_ts
        self._position = _AFTER_DATA if clean else bytes((Subspace.DATA,))
        return RaiseMarkCmd(mark_ts) if raises else None

    def _continue_pass(self, reader: Reader, now: Now) -> Command | None:
        if self._position < _AFTER_DATA:
            command, much = self._versions(reader)
        elif self._position < _AFTER_OUTCOMES:
            command, much = self._outcomes(reader)
        elif self._position < _END:
            command, much = self._finished(reader)
        else:
            self._in_pass, self._position = False, b""
            if not self._logged:
                return None  # nobody knows of this pass, and it found nothing
            return CollectCmd((), 0, 0, b"", self._pass_mark_ts, now.tt.latest)
        self._clean_steps = 0 if command is not None else self._clean_steps + 1
        clean = self._clean_steps >= _CLEAN_STEPS
        self._step_due_us = now.boot_us + (_BUSY_PAUSE_US if much else _CLEAN_PAUSE_US if clean else _PAUSE_US)
        self._silent_steps = 0 if command is not None else self._silent_steps + 1
        if self._silent_steps >= _STEPS_PER_COMMAND:
            self._silent_steps = 0
            command = CollectCmd((), 0, 0, self._position)
        return command

    def _versions(self, reader: Reader) -> tuple[Command | None, bool]:
        start = keyspace.prefix(self._group, Subspace.DATA)[:2] + self._position
        owned = self._state.holding.owned
        mark_ts = self._state.collected.mark_ts
        # Not what was ceded or is still being received: of that, not all versions need be here.
        found = find_garbage(reader, self._group, start, mark_ts, max_items=_ITEMS, of=owned.has_key)
        self.damaged = (self.damaged + found.damaged)[-_ITEMS:]
        self._position = found.position[2:] if found.position else _AFTER_DATA
        if not found.garbage:
            return None, False
        removed = tuple(Removal(*garbage) for garbage in found.garbage)
        command = CollectCmd(removed, found.versions, found.size, self._position)
        return command, found.versions * 4 >= found.items

    def _outcomes(self, reader: Reader) -> tuple[Command | None, bool]:
        permit = self._permit
        names: list[bytes] = []
        for key, value in self._records(reader, Subspace.OUTCOME, _AFTER_OUTCOMES):
            try:
                record = outcomes.decode_outcome(value)
            except F1Error:
                self.damaged.append(key)
                continue
            if outcomes.collectable(record, permit.before_ts, permit.unsettled):
                names.append(key[PREFIX_BYTES:])
        return self._forget(tuple(names), ())

    def _finished(self, reader: Reader) -> tuple[Command | None, bool]:
        names: list[bytes] = []
        for key, value in self._records(reader, Subspace.FINISHED, _END):
            try:
                record = outcomes.decode_finished(value)
            except F1Error:
                self.damaged.append(key)
                continue
            if outcomes.forgettable(record, self._permit.before_ts):
                names.append(key[PREFIX_BYTES:])
        return self._forget((), tuple(names))

    def _forget(self, old: tuple[bytes, ...], finished: tuple[bytes, ...]) -> tuple[Command | None, bool]:
        if not old and not finished:
            return None, False
        permit = self._permit
        command = GcOutcomesCmd(permit.before_ts, permit.unsettled, old, finished, self._position)
        return command, (len(old) + len(finished)) * 4 >= _ITEMS

    def _records(self, reader: Reader, subspace: Subspace, then: bytes) -> list[tuple[bytes, bytes]]:
        """Return the next records from the position on, which moves behind them: to ``then`` after the last one."""
        start, end = keyspace.subspace_range(self._group, subspace)
        found: list[tuple[bytes, bytes]] = []
        for item in reader.scan(max(start, start[:2] + self._position), end):
            if len(found) == _ITEMS:
                self._position = item[0][2:]
                return found
            found.append(item)
            self._has_records = True
        self._position = then
        return found
