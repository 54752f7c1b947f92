"""Groups that are founded while the cluster runs, as rows of the meta group.

One commit founds a group: a row with its number and its first members, and a row that keeps its name from being used
twice. Both stay for ever. Whoever finds itself among the members begins an empty replica when it reads the row, however
late that is, unless it ever had one of the group, and only in the data directory that the row names
(:mod:`spanstore.paxos.configuration`): so no replica begins twice, and none begins that has forgotten something. There
is nothing else to be done, and nothing that could be half done.

The group is in the directory, and so can get ranges, once a majority of its replicas has elected a leader, which writes
the group's own row as it does for every group. Therefore a group owns nothing before its row is committed, and no
commit in it lies at or below the timestamp of that row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.paxos.configuration import MAX_MEMBERS, Configuration, founder
from spanstore.placement.range_map import SYSTEM_TABLE_ID

_FOUNDING = "founding"
_NAME = "group_name"

SINCE_VERSION = 3
"""The version of the protocol from which on servers found groups."""


class Founding(msgspec.Struct, frozen=True, array_like=True):
    """A group that was founded while the cluster ran: its name and its first members, all of which vote."""

    name: str
    voters: tuple[str, ...]

    def configuration(self) -> Configuration:
        """Return the group's first configuration."""
        return Configuration(0, self.voters)


def founding_key(number: int) -> bytes:
    """Return the key of the row of a group's founding."""
    return tuples.encode((SYSTEM_TABLE_ID, _FOUNDING, number))


def founding_range() -> tuple[bytes, bytes]:
    """Return the key range of the foundings of all groups."""
    prefix = tuples.encode((SYSTEM_TABLE_ID, _FOUNDING))
    return prefix, prefix + b"\xff"


def name_key(name: str) -> bytes:
    """Return the key of the row that says which group has a name."""
    return tuples.encode((SYSTEM_TABLE_ID, _NAME, name))


def encode_founding(founding: Founding) -> bytes:
    """Return the value of the row of a group's founding."""
    return msgspec.msgpack.encode(founding)


def decode_foundings(rows: Iterable[tuple[bytes, bytes]]) -> dict[int, Founding]:
    """Read the rows of :func:`founding_range` by the groups' numbers. Raises DATA_CORRUPTION."""
    found = {}
    for key, value in rows:
        number = tuples.decode(key)[-1]
        try:
            founding = msgspec.msgpack.decode(value, type=Founding)
        except msgspec.MsgspecError as error:
            raise F1Error(Code.DATA_CORRUPTION, f"the row of a group's founding cannot be read: {error}") from error
        if not isinstance(number, int):
            raise F1Error(Code.DATA_CORRUPTION, f"a founding is of group {number!r}, which is no number")
        found[number] = founding
    return found


def encode_name(number: int) -> bytes:
    """Return the value of the row that says which group has a name."""
    return msgspec.msgpack.encode(number)


def decode_name(value: bytes) -> int:
    """Read the value of the row that says which group has a name. Raises DATA_CORRUPTION."""
    try:
        return msgspec.msgpack.decode(value, type=int)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the row of a group's name cannot be read: {error}") from error


def choose_founders(
    homes: Mapping[str, str], zones: Mapping[str, str], load: Mapping[str, int], voters: int, wanted: Iterable[str] = ()
) -> Founding:
    """Return the founding, without a name, of a group of ``voters`` in the zones ``wanted``, or in as many as possible.

    ``homes`` are the data directories of the servers that may have a replica, ``zones`` their zones and ``load`` how
    many replicas each has: servers with few come first. Raises INVALID_ARGUMENT, FAILED_PRECONDITION.
    """
    if voters % 2 == 0 or not 1 <= voters <= MAX_MEMBERS:
        raise F1Error(Code.INVALID_ARGUMENT, f"a group has an odd number of voters, up to {MAX_MEMBERS}, not {voters}")
    missing = Counter(wanted)
    crowded: Counter[str] = Counter()
    chosen: list[str] = []
    for _ in range(voters):
        free = [server for server in homes if server not in chosen and (not missing or missing[zones[server]] > 0)]
        if not free:
            lack = f" in zone {', '.join(sorted(missing.elements()))}" if missing else ""
            text = f"a group of {voters} voters needs another server{lack} that is up and not being drained"
            raise F1Error(Code.FAILED_PRECONDITION, f"{text}; there are {', '.join(sorted(homes)) or 'none'}")
        best = min(free, key=lambda server: (crowded[zones[server]], load.get(server, 0), server))
        chosen.append(best)
        crowded[zones[best]] += 1
        missing[zones[best]] -= 1
        missing = +missing
    return Founding("", tuple(founder(server, homes[server]) for server in sorted(chosen)))
