"""Who serves where: the cluster's servers and the members of its groups, as rows of the meta group.

The rows are what everybody can find out about; they are *not* what a group goes by. A group's members are decided in
its own log, and its leader writes them here afterwards; whoever acts on an old row is corrected by the server it asks.

What an operator wants of a server, its :class:`Standing`, has a row of its own, because the server writes the other
one. A removed server keeps that row for ever: its name is not used again, and whoever starts it by accident finds out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.paxos.configuration import Configuration, server_of
from spanstore.placement.founding import Founding, decode_foundings, founding_range
from spanstore.placement.policy import Policy, decode_policies, group_policy_range
from spanstore.placement.range_map import SYSTEM_TABLE_ID

_SERVER = "server"
_GROUP = "group"
_STANDING = "standing"
_VERSION = "protocol"


class Standing(StrEnum):
    """What an operator wants of a server."""

    SERVING = "serving"
    DRAINING = "draining"
    """It gets no new replicas, and those that it has go elsewhere."""
    REMOVED = "removed"
    """It belongs to the cluster no more, for ever: its peers refuse it, and it ends when it finds out."""


@dataclass(frozen=True, slots=True)
class Server:
    """A spanserver: its failure zone and where it is reached."""

    zone: str
    address: str


@dataclass(frozen=True, slots=True)
class Directory:
    """What is known of the cluster's servers, by name, and of the members of its groups, by number.

    ``standing`` names servers that an operator has given orders about; ``servers`` lacks the removed ones.
    ``policies`` are of the groups that have been given one.
    """

    servers: Mapping[str, Server] = field(default_factory=dict)
    groups: Mapping[int, Configuration] = field(default_factory=dict)
    standing: Mapping[str, Standing] = field(default_factory=dict)
    policies: Mapping[int, Policy] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    """The version of the protocol that a server spoke when it last wrote so."""
    foundings: Mapping[int, Founding] = field(default_factory=dict)
    """The groups that were founded while the cluster ran, those without a leader so far included."""

    def is_draining(self, server: str) -> bool:
        """Tell whether a server is to give its replicas away."""
        return self.standing.get(server) is Standing.DRAINING

    def is_removed(self, server: str) -> bool:
        """Tell whether a server was removed from the cluster."""
        return self.standing.get(server) is Standing.REMOVED

    def voters(self, group: int) -> list[str]:
        """Return the servers of a group's voters."""
        return [server_of(member) for member in self.groups[group].voters]

    def learners(self, group: int) -> list[str]:
        """Return the servers of a group's learners: its read-only replicas."""
        return [server_of(member) for member in self.groups[group].learners]

    def merged(self, newer: "Directory") -> "Directory":
        """Return this directory with what ``newer`` knows instead where both know something."""
        groups = dict(self.groups)
        for number, configuration in newer.groups.items():
            if number not in groups or groups[number].version <= configuration.version:
                groups[number] = configuration
        # Whoever was removed stays so, whatever an older row says.
        removed = {name: Standing.REMOVED for name in self.standing if self.is_removed(name)}
        standing = {**self.standing, **newer.standing, **removed}
        policies = {**self.policies, **newer.policies}
        versions = {**self.versions, **newer.versions}
        foundings = {**self.foundings, **newer.foundings}
        return directory_of({**self.servers, **newer.servers}, groups, standing, policies, versions, foundings)


def directory_of(
    servers: Mapping[str, Server],
    groups: Mapping[int, Configuration],
    standing: Mapping[str, Standing],
    policies: Mapping[int, Policy],
    versions: Mapping[str, int],
    foundings: Mapping[int, Founding],
) -> Directory:
    """Return the directory without the servers that were removed."""
    present = {name: server for name, server in servers.items() if standing.get(name) is not Standing.REMOVED}
    return Directory(present, groups, standing, policies, versions, foundings)


def server_key(name: str) -> bytes:
    """Return the key of a server's row."""
    return tuples.encode((SYSTEM_TABLE_ID, _SERVER, name))


def group_key(number: int) -> bytes:
    """Return the key of the row of a group's members."""
    return tuples.encode((SYSTEM_TABLE_ID, _GROUP, number))


def standing_key(name: str) -> bytes:
    """Return the key of the row of a server's standing."""
    return tuples.encode((SYSTEM_TABLE_ID, _STANDING, name))


def version_key(name: str) -> bytes:
    """Return the key of the row of the version of the protocol that a server speaks."""
    return tuples.encode((SYSTEM_TABLE_ID, _VERSION, name))


def group_range() -> tuple[bytes, bytes]:
    """Return the key range of the rows of all groups' members."""
    return _range_of(_GROUP)


def number_of_group(key: bytes) -> int:
    """Return the number of the group whose members' row has a key of :func:`group_range`."""
    number = tuples.decode(key)[-1]
    if not isinstance(number, int):
        raise F1Error(Code.DATA_CORRUPTION, f"the members of group {number!r}, which is no number, are stored")
    return number


def row_ranges() -> list[tuple[bytes, bytes]]:
    """Return the key ranges that hold the directory's rows."""
    return [
        *(_range_of(kind) for kind in (_GROUP, _SERVER, _STANDING, _VERSION)),
        group_policy_range(),
        founding_range(),
    ]


def _range_of(kind: str) -> tuple[bytes, bytes]:
    prefix = tuples.encode((SYSTEM_TABLE_ID, kind))
    return prefix, prefix + b"\xff"


def encode_server(server: Server) -> bytes:
    """Return the value of a server's row."""
    return msgspec.msgpack.encode((server.zone, server.address))


def encode_group(configuration: Configuration) -> bytes:
    """Return the value of a group's row."""
    return msgspec.msgpack.encode((configuration.version, configuration.voters, configuration.learners))


def encode_standing(standing: Standing) -> bytes:
    """Return the value of the row of a server's standing."""
    return msgspec.msgpack.encode(standing.value)


def encode_version(version: int) -> bytes:
    """Return the value of the row of the version of the protocol that a server speaks."""
    return msgspec.msgpack.encode(version)


def decode_directory(rows: Iterable[tuple[bytes, bytes]]) -> Directory:
    """Read the rows of :func:`row_ranges`. Raises DATA_CORRUPTION for what cannot be read."""
    servers: dict[str, Server] = {}
    groups: dict[int, Configuration] = {}
    standing: dict[str, Standing] = {}
    policies: list[tuple[bytes, bytes]] = []
    foundings: list[tuple[bytes, bytes]] = []
    apart = ((group_policy_range(), policies), (founding_range(), foundings))
    versions: dict[str, int] = {}
    for key, value in rows:
        kept = next((kept for (low, high), kept in apart if low <= key < high), None)
        if kept is not None:
            kept.append((key, value))
            continue
        try:
            _, kind, name = tuples.decode(key)
            if kind == _SERVER and isinstance(name, str):
                servers[name] = Server(*msgspec.msgpack.decode(value, type=tuple[str, str]))
            elif kind == _GROUP and isinstance(name, int):
                fields = msgspec.msgpack.decode(value, type=tuple[int, tuple[str, ...], tuple[str, ...]])
                groups[name] = Configuration(*fields)
            elif kind == _STANDING and isinstance(name, str):
                standing[name] = msgspec.msgpack.decode(value, type=Standing)
            elif kind == _VERSION and isinstance(name, str):
                versions[name] = msgspec.msgpack.decode(value, type=int)
        except (msgspec.DecodeError, ValueError, F1Error) as error:
            raise F1Error(Code.DATA_CORRUPTION, f"a row of the directory cannot be read: {error}") from error
    return directory_of(servers, groups, standing, decode_policies(policies), versions, decode_foundings(foundings))
