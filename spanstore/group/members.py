"""Who belongs to a group and which replica lives here: the records of it on disk, and the steps of an operator.

A server keeps, for each group, the newest *life* that it ever began, also after that replica was removed: a name is
that of one life (:mod:`spanstore.paxos.configuration`), and no life begins twice.
"""

from enum import StrEnum

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader, WriteBatch
from spanstore.paxos.configuration import Configuration, decode_configuration, joined_at, server_of

_CONFIGURATION = "configuration"
_LIFE = "life/"


class Step(StrEnum):
    """One change of a group's members, or of who leads it."""

    ADD = "add"
    """A new replica at a server, as a learner: a read-only replica, or one that is to become a voter."""
    PROMOTE = "promote"
    """A learner that has caught up becomes a voter."""
    DEMOTE = "demote"
    """A voter becomes a learner."""
    REMOVE = "remove"
    TRANSFER = "transfer"
    """Leadership goes to a voter; the members stay."""


def load_configuration(reader: Reader, group: int) -> Configuration | None:
    """Return the members as of the applied index, None where nothing is stored. Raises DATA_CORRUPTION."""
    data = reader.get(keyspace.meta_key(group, _CONFIGURATION))
    return None if data is None else decode_configuration(data)


def put_configuration(batch: WriteBatch, group: int, configuration: Configuration) -> None:
    """Write the members as of the rows of this batch."""
    batch.put(keyspace.meta_key(group, _CONFIGURATION), configuration.encode())


def load_lives(reader: Reader) -> dict[int, tuple[str, bool]]:
    """Return, for each group that ever had a replica here, the name of the newest one and whether it lives."""
    start = keyspace.server_meta_key(_LIFE)
    end = keyspace.server_meta_key(_LIFE[:-1] + chr(ord(_LIFE[-1]) + 1))
    return {
        int(key[len(start) :]): msgspec.msgpack.decode(value, type=tuple[str, bool])
        for key, value in reader.scan(start, end)
    }


def put_life(batch: WriteBatch, group: int, member: str, *, alive: bool) -> None:
    """Note that the replica ``member`` begins here, or that it has ended."""
    batch.put(keyspace.server_meta_key(f"{_LIFE}{group}"), msgspec.msgpack.encode((member, alive)))


def is_later_life(member: str, than: str) -> bool:
    """Tell whether ``member`` is a later life than ``than``, of the same server; an empty name is before all."""
    return not than or joined_at(member) > joined_at(than)


def member_at(configuration: Configuration, name: str) -> str:
    """Return the member that ``name``, a member or a server, means. Raises NOT_FOUND."""
    for member in configuration.members:
        if name in (member, server_of(member)):
            return member
    raise F1Error(Code.NOT_FOUND, f"{name} is no member: {', '.join(configuration.members)} are")


def next_configuration(before: Configuration, step: Step, name: str, home: str) -> Configuration:
    """Return the configuration after ``step``. Raises NOT_FOUND, ALREADY_EXISTS, INVALID_ARGUMENT."""
    if step is Step.ADD:
        servers = {server_of(member) for member in before.members}
        if name in servers:
            raise F1Error(Code.ALREADY_EXISTS, f"{name} has a replica of this group already")
        if not home:
            raise F1Error(Code.INVALID_ARGUMENT, "a new replica needs the name of its server's data directory")
        return before.with_learner(name, home)
    member = member_at(before, name)
    votes = member in before.voters
    match step:
        case Step.PROMOTE if votes:
            raise F1Error(Code.ALREADY_EXISTS, f"{member} votes already")
        case Step.PROMOTE:
            return before.with_voter(member)
        case Step.DEMOTE if not votes:
            raise F1Error(Code.ALREADY_EXISTS, f"{member} is a learner already")
        case Step.DEMOTE:
            return before.with_demoted(member)
        case Step.REMOVE:
            return before.without(member)
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, f"{step} changes no members")
