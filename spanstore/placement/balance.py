"""Which replica should be where: repairs first, then an even load; one move at a time, and only if it helps.

Pure: what is known of the servers and groups goes in, at most one :class:`Move` comes out. Whoever carries it out looks
again afterwards, so a wrong guess about a slow server costs one copy and no safety: each step of a move is refused by
the group itself if it would leave no majority.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spanstore.paxos.configuration import server_of


class Health(StrEnum):
    """What is known of a server."""

    UP = "up"
    SILENT = "silent"
    """It has not answered for a while: nothing is put there, nothing is taken from it yet."""
    DEAD = "dead"
    """It has been silent for so long that its replicas are replaced."""


class Why(StrEnum):
    """The reason for a move."""

    DEAD = "its server is dead"
    LOST = "its server holds it no more"
    DRAINING = "its server is being drained"
    POLICY = "the group's policy wants it in another zone"
    BALANCE = "its server holds more replicas than others"
    ORDER = "an operator wants it"
    JOIN = "it was to become a voter, and whoever saw to that has stopped"


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server: ``holds`` are the members, by group, that it says it has and that are whole."""

    name: str
    zone: str
    health: Health = Health.UP
    draining: bool = False
    holds: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group that has a leader: its members by its own log, and the zones that its policy wants a voter in each of."""

    number: int
    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Put a replica of ``group`` at ``new`` in the place of the one at ``old``; equal: build it anew there.

    ``old`` is a server, or one life of a replica at a server.
    """

    group: int
    old: str
    new: str
    votes: bool
    why: Why


def plan(servers: Iterable[ServerState], groups: Iterable[GroupState], *, rebalance: bool = True) -> Move | None:
    """Return the move that matters most, None if all is well or nothing can be done."""
    known = {server.name: server for server in servers}
    numbered = sorted(groups, key=lambda group: group.number)
    load = Counter(server_of(member) for group in numbered for member in group.voters + group.learners)
    for why in (Why.LOST, Why.DEAD, Why.DRAINING):
        for group in numbered:
            move = _repair(group, known, load, why)
            if move is not None:
                return move
    for group in numbered:
        move = _follow_policy(group, known, load)
        if move is not None:
            return move
    return _even_out(known, numbered, load) if rebalance else None


def _repair(group: GroupState, known: Mapping[str, ServerState], load: Counter[str], why: Why) -> Move | None:
    for member in group.voters + group.learners:
        name = server_of(member)
        server = known.get(name)
        if not _is_due(server, group.number, member, why):
            continue
        # With an even number of voters, the learner that is lost was to become one.
        votes = member in group.voters or len(group.voters) % 2 == 0
        if why is Why.LOST:
            return Move(group.number, name, name, votes, why)
        new = best_place(group, member, known, load)
        if new is not None:
            return Move(group.number, name, new, votes, why)
    return None


def _is_due(server: ServerState | None, group: int, member: str, why: Why) -> bool:
    match why:
        case Why.LOST:
            whole = server is None or server.holds.get(group) == member
            return server is not None and server.health is Health.UP and not server.draining and not whole
        case Why.DEAD:
            return server is None or server.health is Health.DEAD
        case _:
            return server is not None and server.draining


def _follow_policy(group: GroupState, known: Mapping[str, ServerState], load: Counter[str]) -> Move | None:
    """Return the move of a voter from a zone where the policy wants fewer to one where it wants more."""
    surplus = Counter(_zones_of(group.voters, known)) - Counter(group.zones)
    if not group.zones or len(group.voters) != len(group.zones):
        return None  # a replacement is under way, or the policy is of another time
    for member in group.voters:
        server = known.get(server_of(member))
        if server is None or not surplus[server.zone]:
            continue
        new = best_place(group, member, known, load)
        if new is not None and known[new].zone in _missing(group, member, known):
            return Move(group.number, server.name, new, True, Why.POLICY)
    return None


def _missing(group: GroupState, leaving: str, known: Mapping[str, ServerState]) -> Counter[str]:
    """Return the zones in which the policy wants voters that are not there, once ``leaving`` has left."""
    return Counter(group.zones) - Counter(_zones_of((m for m in group.voters if m != leaving), known))


def _zones_of(members: Iterable[str], known: Mapping[str, ServerState]) -> list[str]:
    return [known[server_of(member)].zone for member in members if server_of(member) in known]


def best_place(group: GroupState, leaving: str, known: Mapping[str, ServerState], load: Counter[str]) -> str | None:
    """Return the server for a new replica.

    In a zone where the group's policy wants one, then in one that the group has none in, if possible, and with little
    load.
    """
    taken = {server_of(member) for member in group.voters + group.learners}
    crowded = Counter(_zones_of((m for m in group.voters if m != leaving), known))
    missing = _missing(group, leaving, known)
    fit = [s for s in known.values() if s.health is Health.UP and not s.draining and s.name not in taken]
    if not fit:
        return None
    return min(fit, key=lambda s: (not missing[s.zone], crowded[s.zone], load[s.name], s.name)).name


def _even_out(known: Mapping[str, ServerState], groups: list[GroupState], load: Counter[str]) -> Move | None:
    """Return a move from the fullest server to an emptier one that leaves the group in no fewer zones."""
    able = [s for s in known.values() if s.health is Health.UP and not s.draining]
    if any(s.health is Health.SILENT and not s.draining for s in known.values()):
        return None  # copies that a restart makes unnecessary
    for full in sorted(able, key=lambda s: (-load[s.name], s.name)):
        for empty in sorted(able, key=lambda s: (load[s.name], s.name)):
            if load[full.name] - load[empty.name] < 2:
                break
            for group in groups:
                move = _shift(group, full, empty, known)
                if move is not None:
                    return move
    return None


def _shift(group: GroupState, full: ServerState, empty: ServerState, known: Mapping[str, ServerState]) -> Move | None:
    members = {server_of(member): member for member in group.voters + group.learners}
    member = members.get(full.name)
    if member is None or empty.name in members:
        return None
    votes = member in group.voters
    before = _zones_of(group.voters, known)
    if votes:
        if group.zones and empty.zone != full.zone:
            return None  # where its voters lie is not for the load to decide
        after = list(before)
        after.remove(full.zone)
        if len({*after, empty.zone}) < len(set(before)):
            return None
    return Move(group.number, full.name, empty.name, votes, Why.BALANCE)
