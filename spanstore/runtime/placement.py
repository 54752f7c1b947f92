"""The placement driver: replicas of dead servers are built elsewhere, new servers take their share.

Every spanserver has one, and the one at the leader of the meta group works (F1, section 2.1, relies on it that the
storage tier moves data for balance and after failures). A move is written down before it begins and deleted after it
ended, so that the next driver goes on with it; two drivers at once do the same steps, which may be repeated.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any

from f1common.clock import Clock
from f1common.config import PlacementSection
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import KeyRange, SpanClient, Write
from spanstore.client.groups import GroupAdmin
from spanstore.paxos.configuration import home_of, server_of
from spanstore.placement.balance import GroupState, Health, Move, ServerState, Why, plan
from spanstore.placement.directory import Directory
from spanstore.placement.orders import DRIVER, MOVE_KEY, Joining, decode_move, encode_move, order_key, order_range
from spanstore.placement.policy import ANYWHERE
from spanstore.placement.range_map import META_GROUP
from spanstore.runtime.registrar import Registrar
from spanstore.runtime.spanserver import SpanServer

_log = logging.getLogger(__name__)

_SETTLE_US = 10_000_000
_STEP_TIMEOUT_S = 3600.0
_WATCH_S = 2.0
_PATIENCE_S = 20.0
_GIVE_UP_S = 10.0
_NEXT_MOVE_S = 0.2
_TRY_AGAIN_US = 60_000_000
"""After which a learner that could not be made a voter is tried again: others come first."""


@dataclass(slots=True)
class _Seen:
    """What a driver remembers of a server: when it last answered, and since when it lacks which members."""

    answered_us: int
    lacks: dict[str, int]


class PlacementDriver:
    """One task for each spanserver."""

    def __init__(
        self, server: SpanServer, client: SpanClient, registrar: Registrar, clock: Clock, config: PlacementSection
    ) -> None:
        self._server = server
        self._client = client
        self._registrar = registrar
        self._clock = clock
        self._config = config
        self._seen: dict[str, _Seen] = {}
        self._tried: dict[tuple[int, str], int] = {}
        self.moves = 0
        """Moves that this driver has carried out."""

    async def run(self) -> None:
        """Look at the cluster, and move what has to move, until cancelled."""
        moved = False
        while True:
            # Where one replica had to move, another may have to.
            await asyncio.sleep(_NEXT_MOVE_S if moved else self._config.period_ms / 1000)
            moved = False
            meta = self._server.groups.get(META_GROUP)
            if meta is None or not meta.is_serving_leader():
                self._seen.clear()  # what it saw earlier says nothing about how long a server has been silent
                continue
            try:
                moved = await self._once()
            except F1Error as error:
                _log.warning("placement: %s", error)

    async def _once(self) -> bool:
        """Carry on the move that is written down, or find one and carry it out; tell whether one was."""
        move = await self._written()
        if move is None:
            move = await self._ordered() or await self._broken_off() or await self._planned()
            if move is None:
                return False
            await self._client.commit([Write(MOVE_KEY, encode_move(move))])
            _log.info("group %d: its replica moves from %s to %s: %s", move.group, move.old, move.new, move.why)
        done = False
        try:
            await self._while_possible(move, self._carry_out(move))
            self.moves += 1
            done = True
        except F1Error as error:
            _log.warning("group %d: its replica does not move from %s to %s: %s", move.group, move.old, move.new, error)
            await self._give_up(move)
        ended = [MOVE_KEY, order_key(move)] if move.why is Why.ORDER else [MOVE_KEY]
        await self._client.commit([Write(key, None) for key in ended])
        return done

    async def _written(self) -> Move | None:
        value = (await self._client.read([MOVE_KEY])).values()[0]
        return None if value is None else decode_move(value)

    async def _ordered(self) -> Move | None:
        start, end = order_range()
        (rows,) = (await self._client.read(ranges=[KeyRange(start, end, limit=1)])).ranges
        return decode_move(rows[0].value) if rows else None

    async def _broken_off(self) -> Move | None:
        """Return what makes a voter of a learner that was to become one, if nobody sees to it any more."""
        now = self._clock.sample()
        admin = self._admin(_GIVE_UP_S)
        for joining in await admin.joining():
            tried_us = self._tried.get((joining.group, joining.server), now.boot_us - _TRY_AGAIN_US)
            if joining.is_free(DRIVER, now.tt.earliest) and now.boot_us - tried_us >= _TRY_AGAIN_US:
                self._tried[joining.group, joining.server] = now.boot_us
                members = await admin.members(joining.group)
                if members.of(joining.server) is not None or len(members.voters) % 2 == 0:
                    return Move(joining.group, joining.instead_of, joining.server, True, Why.JOIN)
                await admin.forget_joining(joining.group, joining.server)  # it went no further than that row
        return None

    def _admin(self, timeout_s: float) -> GroupAdmin:
        return GroupAdmin(self._client, timeout_s=timeout_s, owner=DRIVER)

    async def _planned(self) -> Move | None:
        directory = self._registrar.view()
        servers, groups = self._look(await self._client.status(), directory)
        return plan(servers, groups, rebalance=self._config.rebalance and _all_seen(groups, directory))

    async def _while_possible(self, move: Move, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work`` as long as the server that the replica goes to can have it. Raises UNAVAILABLE when it cannot."""
        task = asyncio.create_task(work, name=f"move to {move.new}")
        hindered_s = 0.0
        while not task.done():
            await asyncio.wait((task,), timeout=_WATCH_S)
            why = "" if task.done() else _obstacle(move, await self._client.status())
            hindered_s = hindered_s + _WATCH_S if why else 0.0
            if hindered_s >= _PATIENCE_S:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise F1Error(Code.UNAVAILABLE, f"for {hindered_s:g} s now, {move.new} {why}")
        task.result()

    async def _carry_out(self, move: Move) -> None:
        admin = self._admin(_STEP_TIMEOUT_S)
        if move.why is Why.JOIN:
            await self._finish(admin, move)
        elif server_of(move.old) == move.new:
            await admin.rebuild(move.group, move.new, old=move.old, votes=move.votes)
        elif move.votes:
            await admin.replace(move.group, move.old, move.new)
        else:
            await admin.add_learner(move.group, move.new)
            if (await admin.members(move.group)).of(move.old) is not None:
                await admin.remove(move.group, move.old)

    async def _finish(self, admin: GroupAdmin, move: Move) -> None:
        """Make a voter of a learner that was to become one, and take out the member whose place it takes."""
        members = await admin.members(move.group)
        if move.old and members.of(move.old) in members.voters:
            await admin.replace(move.group, move.old, move.new)
        else:
            await admin.add_voter(move.group, move.new)

    async def _give_up(self, move: Move) -> None:
        """Take away the replica that came for a move and cannot vote, so that the group is as it was.

        It stays where it is somebody else's, and where its group lacks a voter: then it is tried again later.
        """
        if not move.votes or server_of(move.old) == move.new:
            return
        admin = self._admin(_GIVE_UP_S)
        try:
            members = await admin.members(move.group)
            if members.of(move.new) not in members.learners or len(members.voters) % 2 == 0:
                return
            if any(self._is_mine(joining, move) for joining in await admin.joining()):
                await admin.remove(move.group, move.new)
        except F1Error as error:
            _log.warning("group %d: the new replica at %s stays: %s", move.group, move.new, error)

    def _is_mine(self, joining: Joining, move: Move) -> bool:
        same = (joining.group, joining.server) == (move.group, move.new)
        return same and joining.is_free(DRIVER, self._clock.sample().tt.earliest)

    # ------------------------------------------------------------------ what is known

    def _look(
        self, answers: dict[str, pb.StatusReply | F1Error], directory: Directory
    ) -> tuple[list[ServerState], list[GroupState]]:
        now = self._clock.sample().boot_us
        members = _members(answers, directory)
        by_address = {server.address: name for name, server in directory.servers.items()}
        states = []
        for address, name in sorted(by_address.items(), key=lambda item: item[1]):
            answer = answers.get(address)
            reply = answer if isinstance(answer, pb.StatusReply) and answer.name == name else None
            state = self._server_state(name, directory.servers[name].zone, reply, members, now)
            states.append(replace(state, draining=directory.is_draining(name)))
        return states, list(members.values())

    def _server_state(
        self, name: str, zone: str, reply: pb.StatusReply | None, members: dict[int, GroupState], now: int
    ) -> ServerState:
        seen = self._seen.setdefault(name, _Seen(now, {}))
        if reply is None or reply.all_damaged:
            # What is damaged as a whole holds nothing that counts, and can take nothing until it is emptied.
            silent = now - seen.answered_us
            after = self._config.replace_after_ms * 1000
            dead = bool(after) and silent >= after
            health = Health.DEAD if dead else Health.SILENT
            return ServerState(name, zone, health, holds=_all_of(name, members))
        seen.answered_us = now
        held = {group.group: group.member for group in reply.groups}
        return ServerState(name, zone, holds=self._holds(seen, _all_of(name, members), held, now))

    def _holds(self, seen: _Seen, wanted: dict[int, str], held: dict[int, str], now: int) -> dict[int, str]:
        """Return what a server holds of what it should, and what it has lacked for a short time only.

        A member that has just been added is not there before its leader writes to it, and one that fetches its state
        may not show.
        """
        lacks = {member for group, member in wanted.items() if held.get(group) != member}
        seen.lacks = {member: seen.lacks.get(member, now) for member in lacks}
        lost = {member for member, since in seen.lacks.items() if now - since >= _SETTLE_US}
        return {group: member for group, member in wanted.items() if member not in lost}


def _all_seen(groups: Iterable[GroupState], directory: Directory) -> bool:
    """Tell whether all groups have told where their replicas are: what a server has of the others is not known."""
    return {group.number for group in groups} >= set(directory.groups)


def _obstacle(move: Move, answers: dict[str, pb.StatusReply | F1Error]) -> str:
    """Say why the server of a move cannot have the replica now, nothing if it can."""
    replies = [answer for answer in answers.values() if isinstance(answer, pb.StatusReply)]
    server = next((reply for reply in replies if reply.name == move.new), None)
    if server is None:
        return "has not answered"
    if server.all_damaged:
        return "has had a damaged data file"
    for reply in replies:
        for view in reply.groups:
            if view.group == move.group and view.role == "leader" and view.lease_valid:
                homes = {home_of(m) for m in (*view.voters, *view.learners) if server_of(m) == move.new}
                if homes - {"", server.home}:
                    return "has had another data directory than the replica was made for"
    return ""


def _members(answers: dict[str, pb.StatusReply | F1Error], directory: Directory) -> dict[int, GroupState]:
    """Return the members of every group by its leader; a group without one is left alone."""
    found = {}
    for answer in answers.values():
        for view in answer.groups if isinstance(answer, pb.StatusReply) else ():
            if view.role == "leader" and view.lease_valid:
                zones = directory.policies.get(view.group, ANYWHERE).zones
                found[view.group] = GroupState(view.group, tuple(view.voters), tuple(view.learners), zones)
    return {number: found[number] for number in sorted(found) if number in directory.groups}


def _all_of(server: str, members: dict[int, GroupState]) -> dict[int, str]:
    return {
        number: member
        for number, group in members.items()
        for member in group.voters + group.learners
        if server_of(member) == server
    }
