"""The gRPC face of a spanserver. Nothing is decided here: messages in, values to the driver, values out."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.serving import Owed, serve_one_way, serve_requests
from f1common.rpc.status import maps_errors
from f1common.rpc.versions import check_version
from spanstore.engine.base import Engine
from spanstore.group.load import Load
from spanstore.group.outbox import Ticket
from spanstore.group.view import GroupView
from spanstore.paxos.configuration import server_of
from spanstore.placement.directory import Directory
from spanstore.placement.range_map import META_GROUP
from spanstore.runtime.birth import Hello
from spanstore.runtime.foreground import ForegroundMeter
from spanstore.runtime.peers import CLIENT_REACH, VERSION_REACH
from spanstore.runtime.scrubbing import Scrubber
from spanstore.runtime.spanserver import SpanServer
from spanstore.runtime.state_source import StateSource
from spanstore.runtime.transfer import Progress
from spanstore.runtime.versions import PeerVersions
from spanstore.runtime.wire import (
    answer_to_pb,
    digest_from_pb,
    error_to_pb,
    peer_from_pb,
    report_from_pb,
    request_from_pb,
)

_DEFAULT_TIMEOUT_MS = 10_000
_LONGEST_TIMEOUT_MS = 600_000

Scanner = Callable[[pb.ScanRequest, Any], Awaitable[None]]


class SpanServicer(stubs.SpanServerServicer):
    """Implements ``f1.span.SpanServer``."""

    def __init__(
        self,
        server: SpanServer,
        engine: Engine,
        clock: Clock,
        scanner: Scanner,
        *,
        source: StateSource,
        installing: Callable[[], list[Progress]],
        directory: Callable[[], Directory],
        hello: Callable[[], Hello],
        versions: PeerVersions,
        scrubber: Scrubber | None = None,
        draining: asyncio.Event | None = None,
        handed_over: asyncio.Event | None = None,
    ) -> None:
        """``draining`` ends the streams of clients, ``handed_over`` those of peers: a leader that leaves needs them.

        It may go only to a voter that has all of the log, and only the voters' acknowledgements tell who has.
        """
        self._server = server
        self._engine = engine
        self._clock = clock
        self._draining = draining
        self._handed_over = handed_over
        self._scanner = scanner
        self._directory = directory
        self._hello = hello
        self._versions = versions
        self._version = versions.mine
        self._source = source
        self._installing = installing
        self._foreground = ForegroundMeter()
        self._scrubber = scrubber

    @maps_errors
    async def Session(self, request_iterator: Any, context: Any) -> None:
        """Serve one client's stream of requests."""
        await serve_requests(
            context,
            self._unpack,
            lambda responses: pb.ServerBatch(responses=responses),
            self._handle,
            fail=_failed,
            draining=self._draining,
        )

    def _unpack(self, batch: pb.ClientBatch) -> Any:
        if batch.protocol_version:
            check_version("the client", batch.protocol_version, self._version, CLIENT_REACH)
        return batch.requests

    def _handle(self, request: pb.Request, reply: Owed[pb.Request, pb.Response]) -> None:
        request_id, body = request.id, request.WhichOneof("body")
        if body == "range_map":
            reply(pb.Response(id=request_id, range_map=self._range_map()))
            return
        if body == "scrub":
            reply(pb.Response(id=request_id, scrub=self._scrub(request.scrub)))
            return
        if body == "move_cede" and not self._server.has_group(request.move_cede.heir):
            reply(answer_to_pb(request_id, _no_heir(request.move_cede.heir)))
            return
        timeout_ms = min(request.timeout_ms or _DEFAULT_TIMEOUT_MS, _LONGEST_TIMEOUT_MS)
        arrived_us = self._clock.sample().boot_us
        answer_with: Callable[[pb.Response], None] = reply
        if request.background:
            answer_with = self._in_background(reply)
        elif not self._is_bookkeeping(request.group):
            answer_with = self._measured(request, arrived_us, reply)
        ticket = Ticket(
            request_from_pb(request),
            lambda answer: answer_with(answer_to_pb(request_id, answer)),
            arrived_us + timeout_ms * 1000,
            reply.is_crowded,
        )
        self._server.submit(request.group, ticket, request.ByteSize())

    def _is_bookkeeping(self, group: int) -> bool:
        """Leases, jobs and the range map are in group 0, and users' rows only where there is no other group.

        They are read and written all the time by servers that no user waits for.
        """
        return group == META_GROUP and len(self._server.groups) > 1

    def _measured(
        self, request: pb.Request, arrived_us: int, reply: Callable[[pb.Response], None]
    ) -> Callable[[pb.Response], None]:
        """Return ``reply``, which also notes how long a user waited for it."""
        kind = request.WhichOneof("body") or ""

        def noted(response: pb.Response) -> None:
            now_us = self._clock.sample().boot_us
            self._foreground.add(kind, now_us - arrived_us, now_us, len(request.bundle.works) or 1)
            reply(response)

        return noted

    def _in_background(self, reply: Callable[[pb.Response], None]) -> Callable[[pb.Response], None]:
        """Return ``reply``, which also tells how users are served."""

        def telling(response: pb.Response) -> None:
            meter = self._foreground
            meter.settle(self._clock.sample().boot_us)
            response.foreground.reads, response.foreground.read_us = meter.reads.count, meter.reads.mean_us
            response.foreground.commits, response.foreground.commit_us = meter.commits.count, meter.commits.mean_us
            reply(response)

        return telling

    @maps_errors
    async def Peer(self, request_iterator: Any, context: Any) -> None:
        """Take in another server's Paxos messages."""
        sender = ""

        def unpack(batch: pb.PeerBatch) -> Any:
            nonlocal sender
            check_version(f"spanserver {batch.sender}", batch.protocol_version, self._version, VERSION_REACH)
            self._server.check_identity(batch.sender, batch.cluster_id)
            self._versions.heard(batch.sender, batch.protocol_version)
            sender = batch.sender
            return batch.messages

        def handle(message: pb.PeerMessage) -> None:
            if message.WhichOneof("body") == "digest":
                if server_of(message.sender) == sender:
                    self._server.hear_digest(message.group, message.sender, digest_from_pb(message.digest))
                return
            if message.WhichOneof("body") == "report":
                if self._server.supervision is not None:
                    self._server.supervision.heard(sender, report_from_pb(message.report))
                return
            speaker, hearer = message.sender or sender, message.receiver or self._server.name
            if server_of(speaker) == sender:
                self._server.receive(message.group, speaker, hearer, peer_from_pb(message), message.ByteSize())

        await serve_one_way(context, unpack, handle, draining=self._handed_over)

    @maps_errors
    async def Hello(self, request: pb.HelloRequest, context: Any) -> pb.HelloReply:
        """Tell another founder of the cluster what this server's directory is."""
        self._server.check_identity(request.sender, request.cluster_id)
        hello = self._hello()
        return pb.HelloReply(
            name=self._server.name,
            nonce=hello.nonce,
            born=hello.certificate is not None,
            certificate=hello.certificate,
        )

    @maps_errors
    async def Scan(self, request: pb.ScanRequest, context: Any) -> None:
        """Stream rows as Arrow record batches."""
        if request.protocol_version:
            check_version("the client", request.protocol_version, self._version, CLIENT_REACH)
        await self._scanner(request, context)

    @maps_errors
    async def FetchState(self, request: pb.StateRequest, context: Any) -> None:
        """Stream the state of a group to a replica that its log cannot help."""
        check_version(f"spanserver {request.receiver}", request.protocol_version, self._version, VERSION_REACH)
        await self._source.serve(request, context)

    @maps_errors
    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        """Tell how this server and its replicas are."""
        server = self._server
        now = self._clock.sample()
        zone = server.topology.servers[server.name][0]
        info = self._engine.info()
        return pb.StatusReply(
            name=server.name,
            zone=zone,
            cluster_id=server.topology.cluster_id,
            version=_version(),
            now_earliest=now.tt.earliest,
            home=server.home,
            now_latest=now.tt.latest,
            groups=[
                _group_status(server.groups[n].view(now), server.loads[n].reading(now.boot_us))
                for n in sorted(server.groups)
            ],
            disk_used_bytes=int(info.get("used_bytes", 0)),
            disk_map_bytes=int(info.get("map_bytes", 0)),
            commits=int(info.get("commits", 0)),
            installing=[pb.InstallingStatus(**asdict(progress)) for progress in self._installing()],
            **self._conditions(),
        )

    def _conditions(self) -> dict[str, Any]:
        server, watch = self._server, self._server.supervision
        found: dict[str, Any] = {
            "conditions": server.conditions(),
            "all_damaged": server.casualties.all_out(),
            "damaged_groups": sorted(n for n in server.topology.groups if server.casualties.is_out(n)),
        }
        if watch is not None:
            room = watch.disk.space.room if watch.disk.space is not None else -1
            found |= {"sync_us": watch.disk.sync_us, "longest_sync_us": watch.disk.longest_us, "disk_room_bytes": room}
        if self._scrubber is not None:
            state = self._scrubber.state
            found["scrub"] = pb.ScrubStatus(**{name: getattr(state, name) for name in state.__struct_fields__})
        return found

    def _scrub(self, request: pb.Scrub) -> pb.ScrubReply:
        if self._scrubber is None:
            raise F1Error(Code.FAILED_PRECONDITION, f"{self._server.name} keeps no data on a disk")
        return pb.ScrubReply(passes=self._scrubber.request(request.bytes_per_s))

    def _range_map(self) -> pb.RangeMapReply:
        stored = self._server.stored_range_map()
        if stored is None:
            raise F1Error(Code.UNAVAILABLE, f"{self._server.name} does not know the range map yet; ask another server")
        directory = self._directory()
        return pb.RangeMapReply(
            cluster_id=self._server.topology.cluster_id,
            ranges=[pb.RangeEntry(start=r.start, end=r.end, group=r.group) for r in stored.ranges],
            groups=[
                pb.GroupEntry(
                    group=number,
                    voters=directory.voters(number),
                    leader=self._server.leader_of(number),
                    readers=directory.learners(number),
                    members_version=directory.groups[number].version,
                )
                for number in sorted(directory.groups)
            ],
            servers=[
                pb.ServerEntry(name=name, zone=server.zone, address=server.address)
                for name, server in sorted(directory.servers.items())
            ],
            version=stored.version,
        )


_HARMLESS = frozenset({"read", "safe_time", "range_map"})
"""Requests that have no effect, so that nothing is unknown when there is no answer."""


def _failed(request: pb.Request, error: F1Error) -> pb.Response:
    if error.ambiguous and request.WhichOneof("body") in _HARMLESS:
        error = F1Error(error.code, error.message, retryable=error.retryable, details=error.details)
    return pb.Response(id=request.id, error=error_to_pb(error))


def _group_status(view: GroupView, load: Load) -> pb.GroupStatus:
    return pb.GroupStatus(
        group=view.group,
        role=view.role,
        leader=view.leader,
        ballot_round=view.ballot_round,
        chosen_index=view.chosen_index,
        applied_index=view.applied_index,
        last_index=view.last_index,
        safe_ts=view.safe_ts,
        lease_valid=view.lease_valid,
        prepared=view.prepared,
        locked_transactions=view.locked_transactions,
        safe_holder=view.safe_holder.hex(),
        safe_holder_ts=view.safe_holder_ts,
        digest=view.digest,
        member=view.member,
        members_version=view.configuration.version,
        voters=view.configuration.voters,
        learners=view.configuration.learners,
        matches=dict(view.matches),
        mark_ts=view.collected.mark_ts,
        removed_versions=view.collected.versions,
        removed_bytes=view.collected.size,
        forgotten_outcomes=view.collected.outcomes,
        collecting_passes=view.collected.passes,
        last_pass_ts=view.collected.ended_ts,
        damaged_keys=view.damaged_keys,
        load_rows_per_s=load.rows_per_s,
        load_keys=load.keys,
    )


def _version() -> str:
    try:
        return version("f1db")
    except PackageNotFoundError:
        return "unknown"


def _no_heir(group: int) -> F1Error:
    """Return the error for a range that was to be given up to nobody: no one would ever own it again."""
    return F1Error(
        Code.NOT_FOUND, f"there is no group {group}, as far as is known here; retry if it is new", retryable=True
    )
