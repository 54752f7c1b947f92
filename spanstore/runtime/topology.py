"""What a spanserver knows of its cluster before it has read anything of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanstore.paxos.configuration import Configuration
from spanstore.placement.range_map import RangeMap


@dataclass(frozen=True, slots=True)
class Topology:
    """What a spanserver knows of its cluster when it starts for the first time.

    ``servers`` maps names to (zone, address), ``groups`` numbers to the first members; ``ranges`` is the first range
    map, which from then on lives in the meta group.
    """

    cluster_id: str
    servers: Mapping[str, tuple[str, str]]
    groups: Mapping[int, Configuration]
    ranges: RangeMap
    leader_zones: Mapping[int, str] = field(default_factory=dict)
    """Where leadership of a group should be, unless its policy says otherwise; empty is anywhere."""

    def leaders(self) -> dict[int, frozenset[str]]:
        """Return the servers that should lead each group that has a leader zone."""
        return {
            group: frozenset(name for name, (zone, _) in self.servers.items() if zone == wanted)
            for group, wanted in self.leader_zones.items()
            if wanted
        }

    def founders(self) -> tuple[str, ...]:
        """Return the servers that have a replica of some group from the beginning."""
        return tuple(sorted({member for members in self.groups.values() for member in members.members}))
