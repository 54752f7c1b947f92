"""Keeps this server's view of the cluster fresh, and the cluster's view of this server and of the groups that it leads.

The directory (:mod:`spanstore.placement.directory`) is a cache for finding one another: nothing is decided by it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from f1common.errors import Code, F1Error
from spanstore.client import KeyRange, SpanClient, Write
from spanstore.paxos.configuration import server_of
from spanstore.placement.directory import (
    Directory,
    Server,
    decode_directory,
    encode_group,
    encode_server,
    encode_version,
    group_key,
    row_ranges,
    server_key,
    version_key,
)
from spanstore.placement.policy import leader_zones
from spanstore.placement.range_map import META_GROUP
from spanstore.placement.settings import SETTINGS_KEY, decode_settings, differences
from spanstore.runtime.spanserver import SpanServer

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0
_ASK_S = 5.0


class Registrar:
    """One task for each spanserver."""

    def __init__(
        self,
        server: SpanServer,
        client: SpanClient,
        answers_at: Callable[[str, str], Awaitable[bool]],
        on_removed: Callable[[F1Error], None],
        version: int,
    ) -> None:
        """``answers_at`` tells whether the server of that name is reached at that address.

        ``on_removed`` hears that this server belongs to the cluster no more. ``version`` of the protocol is what it
        speaks.
        """
        self._server = server
        self._client = client
        self._answers_at = answers_at
        self._on_removed = on_removed
        self._version = version
        self._known = Directory()
        topology = server.topology
        self.directory = Directory(
            {name: Server(zone, address) for name, (zone, address) in topology.servers.items()}, topology.groups
        )

    def address_of(self, server: str) -> str | None:
        """Return where a server is reached, None while that is not known."""
        found = self.directory.servers.get(server)
        return None if found is None else found.address

    def servers_of(self, group: int) -> list[str]:
        """Return the servers that may have a replica of a group: its members as far as is known, then all others."""
        known = self.directory
        members = [*known.voters(group), *known.learners(group)] if group in known.groups else []
        return members + sorted(known.servers.keys() - set(members))

    def version_of(self, server: str) -> int:
        """Return the version of the protocol that a server spoke when it last wrote its row, 0 if it never did."""
        return self._known.versions.get(server, 0)

    def peers(self) -> list[str]:
        """Return the names of the other servers of the cluster."""
        return [name for name in sorted(self.directory.servers) if name != self._server.name]

    def is_server(self, name: str) -> bool:
        """Tell whether a server of that name belongs to the cluster, as far as is known."""
        return name in self.directory.servers

    def has_group(self, number: int) -> bool:
        """Tell whether a group of that number exists, as far as is known."""
        return number in self.directory.groups

    def view(self) -> Directory:
        """Return the directory with what the replicas here know better than the rows.

        A group that has just been founded is nobody's business before it has a row, and so a leader.
        """
        known, groups = self.directory.groups, sorted(self._server.groups.items())
        configurations = {number: group.replica.configuration for number, group in groups if number in known}
        mine = {number: configuration for number, configuration in configurations.items() if configuration.voters}
        return self.directory.merged(Directory({}, mine))

    async def run(self) -> None:
        """Read the rows, and write what is missing or old, until cancelled."""
        while True:
            try:
                await self._refresh()
                if self.directory.is_removed(self._server.name):
                    self._on_removed(self._removed())
                    return
                await self._found()
                await self._compare_settings()
                await self._register()
            except F1Error as error:
                _log.debug("the directory is not fresh: %s", error)
            await asyncio.sleep(_PERIOD_S)

    async def _refresh(self) -> None:
        rows = self._server.stored_rows(META_GROUP, row_ranges())
        if rows is not None:
            await self._take_in(rows)
        if rows is None or not self._server.leader_of(META_GROUP):
            # A replica without a leader may be one that the others have forgotten: its rows would be old for ever.
            result = await self._client.read(ranges=[KeyRange(s, e) for s, e in row_ranges()], timeout_s=_ASK_S)
            await self._take_in([(row.key, row.value) for found in result.ranges for row in found])

    async def _compare_settings(self) -> None:
        """Find out how the settings here differ from the cluster's; log it once."""
        row = (SETTINGS_KEY, SETTINGS_KEY + b"\0")
        rows = self._server.stored_rows(META_GROUP, [row])
        if rows is None:
            found = await self._client.read(ranges=[KeyRange(*row)], timeout_s=_ASK_S)
            rows = [(stored.key, stored.value) for stored in found.ranges[0]]
        for _, value in rows:
            unlike = differences(self._server.settings, decode_settings(value))
            for text in {*filter(None, unlike)} - {*self._server.unlike}:
                _log.error("%s", text)
            self._server.unlike = unlike

    async def _take_in(self, rows: list[tuple[bytes, bytes]]) -> None:
        self._known = known = decode_directory(rows)
        servers = {name: await self._believed(name, server) for name, server in sorted(known.servers.items())}
        newer = Directory(servers, known.groups, known.standing, known.policies, foundings=known.foundings)
        self.directory = self.directory.merged(newer)
        self._prefer()

    async def _found(self) -> None:
        """Begin the replicas of new groups that belong here, unless their places have been taken meanwhile."""
        due = {}
        for number, founding in self._known.foundings.items():
            members = self._known.groups.get(number, founding.configuration()).members
            if any(member in members and server_of(member) == self._server.name for member in founding.voters):
                due[number] = founding.configuration()
        await self._server.found(due)

    def _prefer(self) -> None:
        """Tell the groups here where they should be led."""
        zones = leader_zones(self._server.topology.leader_zones, self.directory.policies)
        self._server.prefer(
            {
                group: frozenset(name for name, server in self.directory.servers.items() if server.zone == zone)
                for group, zone in zones.items()
                if zone
            }
        )

    def _removed(self) -> F1Error:
        name = self._server.name
        return F1Error(
            Code.FAILED_PRECONDITION,
            f"{name} was removed from the cluster {self._server.topology.cluster_id}: it ends, and its data are of no "
            "use any more; start a server with another name and an empty data directory instead",
        )

    async def _believed(self, name: str, stored: Server) -> Server:
        """Return how a server is reached that has a row: the row may be older, or newer, than what is known here.

        Whole clusters are started anew at other addresses, while the rows still have the old ones; single servers move
        while the others keep theirs. What is known stays until the server answers at the row's address.
        """
        here = self.directory.servers.get(name)
        if here is None or here.address == stored.address or name == self._server.name:
            return stored if name != self._server.name else self._own()
        return stored if await self._answers_at(name, stored.address) else here

    def _own(self) -> Server:
        return Server(*self._server.topology.servers[self._server.name])

    async def _register(self) -> None:
        """Write the rows of this server and of the groups that it leads, where they differ from what is so."""
        for write in self._due():
            await self._client.commit([write], timeout_s=_ASK_S)

    def _due(self) -> Iterable[Write]:
        server, known = self._server, self._known
        if known.servers.get(server.name) != self._own():
            yield Write(server_key(server.name), encode_server(self._own()))
        if known.versions.get(server.name) != self._version:
            yield Write(version_key(server.name), encode_version(self._version))
        for number, group in sorted(server.groups.items()):
            configuration = group.replica.configuration
            if not group.is_serving_leader() or not group.replica.configuration_settled:
                continue
            stored = known.groups.get(number)
            if stored is None or stored.version < configuration.version:
                yield Write(group_key(number), encode_group(configuration))
