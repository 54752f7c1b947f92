"""Who belongs to a group: voters and learners, as an entry of the log, changed in steps that cannot split a quorum.

A member's name is that of one *life* of a replica: a server that lost its disk, and with it what it promised, comes
back as another member. The first members of the groups that a cluster began with bear the names of their servers,
those of later groups ``server#0-home``, and all others ``server#version-home`` with the version of the configuration
that brought them. So a name is never used twice, and whoever finds itself missing in a
chosen configuration of that version or a later one was removed for good.
"""

from typing import NamedTuple

import msgspec

from f1common.errors import Code, F1Error

_MARK = b"\xc1"
"""First byte of a payload that is a configuration. No command begins with it: msgpack never uses it."""

_LIFE = "#"
_HOME = "-"
_MAX_DIGITS = 18

MAX_MEMBERS = 15


class Configuration(NamedTuple):
    """The members of a group from one point of its log on.

    ``version`` counts the changes from 0. ``voters`` elect leaders and choose entries. ``learners`` receive the log
    and answer reads at a timestamp, no more: read-only replicas, and replicas that are about to become voters.
    """

    version: int = 0
    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """All of them, voters first."""
        return self.voters + self.learners

    def with_learner(self, server: str, home: str = "") -> "Configuration":
        """Return the configuration in which a new replica at ``server`` is a learner.

        ``home`` names the data directory that it may live in: if that is lost, so is the replica.
        """
        version = self.version + 1
        name = f"{server}{_LIFE}{version}{_HOME if home else ''}{home}"
        return Configuration(version, self.voters, (*self.learners, name))

    def with_voter(self, name: str) -> "Configuration":
        """Return the configuration in which the learner ``name`` is a voter."""
        learners = tuple(other for other in self.learners if other != name)
        return Configuration(self.version + 1, (*self.voters, name), learners)

    def with_demoted(self, name: str) -> "Configuration":
        """Return the configuration in which the voter ``name`` is a learner."""
        voters = tuple(other for other in self.voters if other != name)
        return Configuration(self.version + 1, voters, (*self.learners, name))

    def without(self, name: str) -> "Configuration":
        """Return the configuration without the member ``name``."""
        voters = tuple(other for other in self.voters if other != name)
        learners = tuple(other for other in self.learners if other != name)
        return Configuration(self.version + 1, voters, learners)

    def encode(self) -> bytes:
        """Return the payload of the log entry that brings this configuration."""
        return _MARK + msgspec.msgpack.encode((self.version, self.voters, self.learners))


def founder(server: str, home: str) -> str:
    """Return the name of a first member, at ``server``, of a group that is founded while the cluster runs.

    It can only ever live in the data directory ``home``: if that is lost, nobody takes an empty one for it.
    """
    return f"{server}{_LIFE}0{_HOME}{home}"


def server_of(member: str) -> str:
    """Return the server at which ``member`` lives."""
    return member.partition(_LIFE)[0]


def joined_at(member: str) -> int:
    """Return the version of the first configuration with ``member``; 0 also for what is no member's name."""
    version = member.partition(_LIFE)[2].partition(_HOME)[0]
    return int(version) if version.isdecimal() and len(version) <= _MAX_DIGITS else 0


def home_of(member: str) -> str:
    """Return the data directory that ``member`` may live in, empty if that is not said."""
    return member.partition(_LIFE)[2].partition(_HOME)[2]


def decode_configuration(payload: bytes) -> Configuration | None:
    """Return the configuration that a log entry's payload brings, None for a command. Raises DATA_CORRUPTION."""
    if payload[:1] != _MARK:
        return None
    try:
        version, voters, learners = msgspec.msgpack.decode(
            payload[1:], type=tuple[int, tuple[str, ...], tuple[str, ...]]
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"a configuration of a group cannot be read: {error}") from error
    return Configuration(version, voters, learners)


def is_readable(payload: bytes) -> bool:
    """Tell whether a payload is a command, or a configuration that can be read."""
    try:
        decode_configuration(payload)
    except F1Error:
        return False
    return True


def check_step(before: Configuration, after: Configuration) -> None:
    """Refuse a change that is not one safe step. Raises INVALID_ARGUMENT.

    At most one voter comes or goes, so that every majority of the one configuration meets every majority of the other
    (Ongaro, section 4.1). One member changes at a time, and a voter was a learner before: it has caught up by then.
    """
    if after.version != before.version + 1:
        raise _refused(f"version {after.version} does not follow version {before.version}")
    if len(set(after.members)) != len(after.members):
        raise _refused("a member is named twice")
    if not after.voters:
        raise _refused("a group needs a voter")
    if len({server_of(member) for member in after.members}) != len(after.members):
        raise _refused("a server would have two replicas of the group")
    if len(after.members) > MAX_MEMBERS:
        raise _refused(f"a group has at most {MAX_MEMBERS} members")
    old, new = set(before.voters), set(after.voters)
    if len(old ^ new) > 1:
        raise _refused("more than one voter would change")
    if not new - old <= set(before.learners):
        raise _refused("a voter is a learner first")
    for newcomer in set(after.members) - set(before.members):
        if joined_at(newcomer) != after.version:
            raise _refused(f"{newcomer} is not named for version {after.version}")
    changed = {
        name
        for name in {*before.members, *after.members}
        if (name in old) != (name in new) or (name in before.learners) != (name in after.learners)
    }
    if len(changed) != 1:
        raise _refused(f"{len(changed)} members would change, not one")


def _refused(why: str) -> F1Error:
    return F1Error(Code.INVALID_ARGUMENT, f"not a step from one configuration of a group to the next: {why}")
