"""The gRPC face of an f1server: messages in, a task for each request, messages out."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import f1_pb2_grpc as stubs
from f1common.pb import types_pb2
from f1common.rpc.deadlines import Expiries
from f1common.rpc.serving import serve_requests
from f1common.rpc.status import error_from_exception, error_to_wire, maps_errors
from f1common.rpc.versions import check_version
from f1server.access.gate import Gate
from f1server.access.login import Logins
from f1server.access.rights import EVERYBODY, Caller
from f1server.plan.statements import DmlStatement, PlacementStatement, SchemaChangeStatement, parse
from f1server.session import Frontend

PROTOCOL_VERSION = 1
SERVICE_NAME = "f1.db.F1Server"

_DEFAULT_TIMEOUT_MS = 60_000
_COMMITTING = frozenset({"commit", "end", "insert_rows"})
"""Requests that may have been carried out when their time is over."""
_LONGEST_TIMEOUT_MS = 3_600_000
_LONG_TEXT = 10_000
"""Of SQL: the loop has better things to do than to parse it again."""

Handler = Callable[[str, Any, Caller], Awaitable[Any]]

TOKEN_KEY = "f1-token-bin"
"""Metadata of calls between f1servers: the caller's token."""


@dataclass(frozen=True, slots=True)
class Doors:
    """Where roles log in, and where they show that they have."""

    logins: Logins
    gate: Gate


class F1Servicer(stubs.F1ServerServicer):
    """Implements ``f1.db.F1Server``."""

    def __init__(
        self, frontend: Frontend, *, draining: asyncio.Event | None = None, doors: Doors | None = None
    ) -> None:
        """``doors``: where roles log in and show their tokens; None: authentication is none."""
        self._doors = doors
        self._frontend = frontend
        self._draining = draining
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._expiries: Expiries[asyncio.Task[None]] = Expiries(self._end_late)
        self._handlers: dict[str, Handler] = {
            "execute": frontend.execute,
            "fetch": frontend.fetch,
            "close_cursor": frontend.close_cursor,
            "read": frontend.read,
            "commit": frontend.commit,
            "insert_rows": frontend.insert_rows,
            "begin": frontend.begin,
            "end": frontend.end,
            "outcome": frontend.outcome,
            "apply_schema": frontend.apply_schema,
            "show_schema": frontend.show_schema,
            "ping": frontend.ping,
            "read_changes": frontend.read_changes,
            "check": frontend.check,
            "schema_jobs": frontend.schema_jobs,
            "plan_schema": frontend.plan_schema,
        }

    @maps_errors
    async def Session(self, request_iterator: Any, context: Any) -> None:
        """Serve one client's stream of requests; those that are unanswered when it goes away are cancelled."""
        mine: set[asyncio.Task[None]] = set()
        token = b""
        loop = asyncio.get_running_loop()

        def unpack(batch: pb.ClientBatch) -> Any:
            nonlocal token
            token = batch.token
            return self._unpack(batch)

        def handle(request: pb.Request, reply: Callable[[pb.Response], None]) -> None:
            def forget(task: asyncio.Task[None]) -> None:
                mine.discard(task)
                self._tasks.discard(task)
                self._expiries.discard(task)
                if task in self._late:
                    self._late.discard(task)
                    if task.cancelled():  # maybe before it had begun
                        reply(_failed(request, _late(request)))

            task = loop.create_task(self._serve(request, token, reply))
            timeout_ms = min(request.timeout_ms or _DEFAULT_TIMEOUT_MS, _LONGEST_TIMEOUT_MS)
            self._expiries.add(task, loop.time() + timeout_ms / 1000)
            mine.add(task)
            self._tasks.add(task)
            task.add_done_callback(forget)

        try:
            await serve_requests(
                context,
                unpack,
                lambda responses: pb.ServerBatch(responses=responses),
                handle,
                fail=_failed,
                draining=self._draining,
            )
        finally:
            for task in list(mine):
                task.cancel()

    @staticmethod
    def _unpack(batch: pb.ClientBatch) -> Any:
        if batch.protocol_version:
            check_version("the client", batch.protocol_version, PROTOCOL_VERSION)
        return batch.requests

    async def _serve(self, request: pb.Request, token: bytes, reply: Callable[[pb.Response], None]) -> None:
        kind = request.WhichOneof("body")
        try:
            handler = self._handlers.get(kind or "")
            if handler is None:
                raise F1Error(Code.INVALID_ARGUMENT, "a request of an unknown kind; is the client newer?")
            database = request.database or "default"
            caller = await self._admit(token, None if kind == "ping" else database)
            answer = await handler(database, getattr(request, str(kind)), caller)
            response = pb.Response(id=request.id)
            getattr(response, str(kind)).CopyFrom(answer)
        except Exception as error:
            response = _failed(request, error_from_exception(error))
        reply(response)

    def _end_late(self, task: asyncio.Task[None]) -> None:
        """The time of a request is over."""
        if not task.done():
            self._late.add(task)
            task.cancel()

    async def _admit(self, token: bytes, database: str | None) -> Caller:
        """Return who asks. Raises UNAUTHENTICATED, PERMISSION_DENIED."""
        return EVERYBODY if self._doors is None else await self._doors.gate.admit(token, database)

    @maps_errors
    async def RefreshSchema(self, request: pb.RefreshSchemaRequest, context: Any) -> pb.RefreshSchemaReply:
        """Another server changed a schema: use the new version from now on."""
        if self._doors is not None:
            shown = dict(context.invocation_metadata() or ()).get(TOKEN_KEY, b"")
            await self._doors.gate.admit_server(shown if isinstance(shown, bytes) else b"")
        version = await self._frontend.catch_up(request.database, request.version)
        return pb.RefreshSchemaReply(version=version)

    @maps_errors
    async def Login(self, request: pb.LoginRequest, context: Any) -> pb.LoginReply:
        """Answer one message of a login."""
        if self._doors is None:
            return pb.LoginReply()
        logins = self._doors.logins
        if request.client_final:
            done = await logins.end(request.state, request.client_final)
            return pb.LoginReply(server_final=done.message, token=done.token, valid_ms=done.valid_ms)
        challenge = await logins.begin(request.database or "default", request.client_first)
        return pb.LoginReply(server_first=challenge.message, state=challenge.state)

    @maps_errors
    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        """Tell how this server is: names, addresses and versions, to everybody, as a health check needs it."""
        return self._frontend.status()

    async def close(self) -> None:
        """Cancel what is still running."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _late(request: pb.Request) -> F1Error:
    kind = request.WhichOneof("body")
    ambiguous = (
        kind in _COMMITTING
        or (kind == "execute" and _may_commit(request.execute))
        or (kind == "apply_schema" and not request.apply_schema.dry_run)
    )
    return F1Error(Code.DEADLINE_EXCEEDED, "the deadline of the request has passed", ambiguous=ambiguous)


def _may_commit(execute: pb.Execute) -> bool:
    """Tell whether a statement may have changed something by the time it was given up."""
    if execute.commit_id:
        return True
    if execute.txn.kind != pb.AUTOCOMMIT:
        return False  # a transaction commits by a request of its own
    if len(execute.sql) > _LONG_TEXT:
        return True
    try:
        statements = parse(execute.sql)
    except (F1Error, RecursionError):
        return False
    return any(isinstance(one, DmlStatement | SchemaChangeStatement | PlacementStatement) for one in statements)


def _failed(request: pb.Request, error: F1Error) -> pb.Response:
    return pb.Response(id=request.id, error=types_pb2.Error(**error_to_wire(error)._asdict()))
