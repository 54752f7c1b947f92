"""Where replicas should lie and leaders be, for groups and for the tables that they hold, as rows of the meta group.

A group's policy says in which zones its voters lie and in which of them it is led (F1, section 2.1: replicas are spread
over the country, leaders wanted near the servers). A table's policy says what kind of group its rows belong in. A table
here is a root table with everything below it, or a global index: what has a table id of its own at the beginning of
its keys. Nothing is unsafe while a policy is not met; whoever balances the cluster works towards it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import SYSTEM_TABLE_ID

_TABLE = "table_policy"
_GROUP = "group_policy"


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """``zones``: one for each voter, in any order, a zone may come twice; none: anywhere.

    ``leader_zone``: where leadership belongs; empty: anywhere.
    """

    zones: tuple[str, ...] = ()
    leader_zone: str = ""

    def is_met_by(self, group: "Policy") -> bool:
        """Tell whether a group with the policy ``group`` is a place for a table with this one."""
        zones = not self.zones or Counter(self.zones) == Counter(group.zones)
        return zones and (not self.leader_zone or self.leader_zone == group.leader_zone)

    def __str__(self) -> str:
        """Return it for people."""
        parts = [f"voters in {', '.join(sorted(self.zones))}"] if self.zones else []
        parts += [f"led in {self.leader_zone}"] if self.leader_zone else []
        return ", ".join(parts) or "anywhere"


ANYWHERE = Policy()


def check_policy(policy: Policy, zones: Iterable[str], voters: int = 0) -> None:
    """Refuse a policy that no group of the cluster can meet. ``zones``: that of each server.

    ``voters``: how many the group has that it is for, 0 if it is for a table. Raises INVALID_ARGUMENT, and
    FAILED_PRECONDITION while a zone has fewer servers than are to have voters.
    """
    known = Counter(zones)
    unknown = sorted({*policy.zones, *filter(None, (policy.leader_zone,))} - known.keys())
    if unknown:
        have = ", ".join(sorted(known))
        raise F1Error(Code.INVALID_ARGUMENT, f"no server is in zone {', '.join(unknown)}; there are {have}")
    if policy.zones and policy.leader_zone and policy.leader_zone not in policy.zones:
        text = f"no voter would lie in the leader zone {policy.leader_zone}: name it among the zones"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    if voters and policy.zones and len(policy.zones) != voters:
        text = f"the group has {voters} voters, and {len(policy.zones)} zones are named: name one for each voter"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    if policy.zones and len(policy.zones) % 2 == 0:
        raise F1Error(Code.INVALID_ARGUMENT, "a group has 1, 3 or 5 voters: name that many zones")
    for zone, wanted in sorted(Counter(policy.zones).items()):
        if wanted > known[zone]:
            servers = "1 server" if known[zone] == 1 else f"{known[zone]} servers"
            text = f"{wanted} voters are to be in zone {zone}, which has {servers}"
            raise F1Error(Code.FAILED_PRECONDITION, f"{text}: no server has two replicas of a group; add servers there")


def table_policy_key(table: int) -> bytes:
    """Return the key of the row of a table's policy."""
    return tuples.encode((SYSTEM_TABLE_ID, _TABLE, table))


def group_policy_key(group: int) -> bytes:
    """Return the key of the row of a group's policy."""
    return tuples.encode((SYSTEM_TABLE_ID, _GROUP, group))


def table_policy_range() -> tuple[bytes, bytes]:
    """Return the key range of the policies of all tables."""
    return _range_of(_TABLE)


def group_policy_range() -> tuple[bytes, bytes]:
    """Return the key range of the policies of all groups."""
    return _range_of(_GROUP)


def _range_of(kind: str) -> tuple[bytes, bytes]:
    prefix = tuples.encode((SYSTEM_TABLE_ID, kind))
    return prefix, prefix + b"\xff"


_DECODER = msgspec.msgpack.Decoder(Policy)


def encode_policy(policy: Policy) -> bytes:
    """Return the value of a policy's row."""
    return msgspec.msgpack.encode(policy)


def decode_policies(rows: Iterable[tuple[bytes, bytes]]) -> dict[int, Policy]:
    """Read the rows of all tables, or of all groups, by their numbers. Raises DATA_CORRUPTION."""
    found = {}
    for key, value in rows:
        number = tuples.decode(key)[-1]
        try:
            policy = _DECODER.decode(value)
        except msgspec.MsgspecError as error:
            raise F1Error(Code.DATA_CORRUPTION, f"the row of a policy cannot be read: {error}") from error
        if not isinstance(number, int):
            raise F1Error(Code.DATA_CORRUPTION, f"a policy is of {number!r}, which is no number")
        found[number] = policy
    return found


def leader_zones(founding: Mapping[int, str], policies: Mapping[int, Policy]) -> dict[int, str]:
    """Return the zone where each group should be led: as its policy says, otherwise as when it was founded."""
    return {**founding, **{group: policy.leader_zone for group, policy in policies.items()}}
