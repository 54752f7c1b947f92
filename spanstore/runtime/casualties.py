"""Which replicas of a spanserver are out of service because their data are damaged, and how they leave it.

A damaged replica serves nobody from the moment that the damage is known. If it leads it first gives its leadership to
another voter, for at most :data:`LEAVE_US`, and votes until then: its log is sound, or it would have been thrown away
at once. Its mark outlives the process, so that a restart does not bring it back; whoever rebuilds it takes the mark
away (:class:`~spanstore.engine.damage.DamageMarks`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from spanstore.engine.base import EngineFailed
from spanstore.engine.damage import WHOLE_SERVER, DamageMarks
from spanstore.group.group import Group

_P = ParamSpec("_P")
_T = TypeVar("_T")

_log = logging.getLogger(__name__)

LEAVE_US = 2_000_000
"""How long a damaged leader may look for a successor."""

OnDamaged = Callable[[int, str], None]
"""Told (group, reason) once for each replica that is taken out, after it has been marked: whoever rebuilds it."""


class Casualties:
    """The damaged replicas of one server, whose ``groups`` and times ``due`` it changes."""

    def __init__(
        self,
        server: str,
        marks: DamageMarks,
        clock: Clock,
        groups: dict[int, Group],
        due: dict[int, int],
        on_damaged: OnDamaged | None = None,
    ) -> None:
        self._server = server
        self._marks = marks
        self._clock = clock
        self._groups = groups
        self._due = due
        self._on_damaged = on_damaged
        self._reasons = dict(marks.all())
        self._leaving: dict[int, int] = {}
        for group, reason in sorted(self._reasons.items()):
            self._say(group, f"was found damaged earlier: {reason}")

    @property
    def reasons(self) -> Mapping[int, str]:
        """What is damaged, by group; :data:`~spanstore.engine.damage.WHOLE_SERVER` stands for all."""
        return self._reasons

    def all_out(self) -> bool:
        """Tell whether the pages themselves are damaged, so that nothing here can be used or built anew."""
        return WHOLE_SERVER in self._reasons

    def is_out(self, group: int) -> bool:
        """Tell whether the replica of ``group`` may not serve."""
        return group in self._reasons or WHOLE_SERVER in self._reasons

    def error(self, group: int) -> F1Error:
        """Return what a request for a damaged replica is answered."""
        reason = self._reasons.get(group) or self._reasons.get(WHOLE_SERVER, "")
        return F1Error(
            Code.DATA_CORRUPTION,
            f"the replica of group {group} at {self._server} is out of service: {reason}",
            retryable=True,
            details={"group": str(group), "server": self._server},
        )

    def texts(self) -> list[str]:
        """Say what is damaged."""
        where = {WHOLE_SERVER: "all replicas"}
        return [f"damaged: {where.get(g, f'group {g}')}: {reason}" for g, reason in sorted(self._reasons.items())]

    def take_out(self, group: int, damage: F1Error) -> None:
        """Let a replica serve nobody any more, give its leadership away and go.

        What the engine itself finds wrong is no record of one group but a page, which takes all of them out.
        """
        if isinstance(damage, EngineFailed):
            group = WHOLE_SERVER
        self._add(group, damage.message)
        for number in [n for n in sorted(self._groups) if group in (n, WHOLE_SERVER)]:
            self._leaving.setdefault(number, self._clock.sample().boot_us + LEAVE_US)
            self._groups[number].condemn(self.error(number))
            self._due[number] = 0

    def rebuilt(self, group: int) -> None:
        """Take a mark away: the replica begins anew, without anything of the damaged one."""
        if self._reasons.pop(group, None) is not None:
            self._marks.clear(group)
            _log.warning("the replica of group %d at %s begins anew after damage", group, self._server)

    def bury(self) -> None:
        """Throw away replicas that are out and lead no more, or have looked for a successor long enough."""
        for number, until_us in sorted(self._leaving.items()):
            group = self._groups.get(number)
            if group is None or not group.leads() or self._clock.sample().boot_us >= until_us:
                self._discard(number)

    def guarded(
        self, number: int, step: Callable[Concatenate[Group, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T | None:
        """Let a replica take a step; one whose disk turns out to be damaged is thrown away at once, and gives None.

        A step that was broken off leaves the replica's memory in no state to go on with, not even to hand over.
        """
        group = self._groups.get(number)
        if group is None:
            return None
        try:
            return step(group, *args, **kwargs)
        except F1Error as error:
            self._judge(number, error)
            return None

    @contextmanager
    def found_in(self, number: int) -> Iterator[None]:
        """End quietly on damage of a replica's own records, which is then out; damaged pages are raised on."""
        try:
            yield
        except F1Error as error:
            self._judge(number, error)

    def _judge(self, number: int, error: F1Error) -> None:
        """Take the replica out if its records are damaged. Raises all other errors again."""
        if error.code is not Code.DATA_CORRUPTION:
            raise error
        if isinstance(error, EngineFailed):
            self._add(WHOLE_SERVER, error.message)
            raise error
        self._add(number, error.message)
        self._discard(number)

    def pages_damaged(self, error: EngineFailed) -> None:
        """Note that the engine found the file itself damaged, if that is what ``error`` says."""
        if error.code is Code.DATA_CORRUPTION:
            self._add(WHOLE_SERVER, error.message)

    def _discard(self, number: int) -> None:
        self._leaving.pop(number, None)
        self._due.pop(number, None)
        group = self._groups.pop(number, None)
        if group is not None:
            group.discard(self.error(number), self._clock.sample())

    def _add(self, group: int, reason: str) -> None:
        """Mark a replica, unless it is known."""
        if self.is_out(group):
            return
        self._reasons[group] = reason
        try:
            self._marks.mark(group, reason)
        except F1Error as error:
            _log.error("%s", error)
        self._say(group, f"is damaged: {reason}")
        if self._on_damaged is not None:
            self._on_damaged(group, reason)

    def _say(self, group: int, what: str) -> None:
        where = "all replicas" if group == WHOLE_SERVER else f"the replica of group {group}"
        _log.error("%s at %s: %s; it serves nothing until it is rebuilt from the others", where, self._server, what)
