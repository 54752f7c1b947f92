"""Logging in: a SCRAM exchange with any f1server, and the token that it gives, renewed before it ends.

One login serves all servers and all connections of a process that use the same addresses, database, user and password.
The password stays in this process's memory, for tokens are not renewed with themselves: who has stolen one has it for
minutes.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from f1common.errors import Code, F1Error
from f1common.ids import secret_bytes
from f1common.pb import f1_pb2 as pb
from f1common.rpc.deadlines import Deadline
from f1common.rpc.status import error_from_rpc
from f1common.scram import ClientExchange

__all__ = ["PASSWORD_VARIABLE", "USER_VARIABLE", "Credentials", "Login", "credentials_of"]

USER_VARIABLE, PASSWORD_VARIABLE = "F1_USER", "F1_PASSWORD"

_CALL_S = 30.0
"""A login may wait behind others that guess."""
_RENEW = 0.75
"""After which part of a token's life the next one is fetched."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in. Two connections with the same ones share their login."""

    user: str
    password: str = field(repr=False)
    database: str


def credentials_of(user: str | None, password: str | None, database: str) -> Credentials | None:
    """Return what a connection is to log in with; what is not given is taken from the environment. None: nothing.

    Raises F1Error INVALID_ARGUMENT for a user without a password.
    """
    user = user if user is not None else os.environ.get(USER_VARIABLE)
    if not user:
        if password is not None:
            raise F1Error(Code.INVALID_ARGUMENT, "a password is given, and no user")
        return None
    password = password if password is not None else os.environ.get(PASSWORD_VARIABLE)
    if not password:
        raise F1Error(
            Code.INVALID_ARGUMENT, f"the user {user} has no password here: give one, or set ${PASSWORD_VARIABLE}"
        )
    return Credentials(user, password, database)


class Login:
    """The login of a role. Lives on one event loop."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        nonce: Callable[[], str] = lambda: secret_bytes(18).hex(),
        threads: bool = True,
    ) -> None:
        """``nonce``: what nobody can guess, but in tests. ``threads``: hash passwords beside the event loop."""
        self._threads = threads
        self._credentials = credentials
        self._nonce = nonce
        self.token = b""
        """What to show; empty: nothing is asked for, or not yet."""
        self._renew_s = 0.0
        self._ends_s = 0.0
        self._running: asyncio.Task[None] | None = None

    async def ensure(self, stub: Any, deadline: Deadline) -> bytes:
        """See that there is a token for the next call, and return it. ``stub``: of the server that is asked for one.

        Raises F1Error UNAUTHENTICATED for a wrong user or password, UNAVAILABLE and others if nobody answers.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._renew_s:
            return self.token
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._log_in(stub), name="login")
            self._running.add_done_callback(_look_at)
        if now_s < self._ends_s:
            return self.token
        async with asyncio.timeout(deadline.remaining_s()):
            await asyncio.shield(self._running)
        return self.token

    def forget(self, token: bytes) -> None:
        """A server refused a token: do not show it again."""
        if token == self.token:
            self.token, self._renew_s, self._ends_s = b"", 0.0, 0.0

    async def close(self) -> None:
        """End a login that is on its way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _log_in(self, stub: Any) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        who = self._credentials
        exchange = ClientExchange(who.user, who.password, self._nonce())
        try:
            request = pb.LoginRequest(database=who.database, client_first=exchange.first())
            challenge: pb.LoginReply = await stub.Login(request, timeout=_CALL_S)
            if not challenge.server_first:
                # Authentication is none. It may be turned on: then a server refuses, and this is done again.
                self.token, self._renew_s, self._ends_s = b"", float("inf"), float("inf")
                return
            text = challenge.server_first
            final = await asyncio.to_thread(exchange.final, text) if self._threads else exchange.final(text)
            request = pb.LoginRequest(state=challenge.state, client_final=final)
            done: pb.LoginReply = await stub.Login(request, timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None
        exchange.check(done.server_final)
        life_s = done.valid_ms / 1_000
        self.token, self._renew_s, self._ends_s = done.token, began_s + _RENEW * life_s, began_s + life_s


def _look_at(task: "asyncio.Task[None]") -> None:
    """Take note of an error that nobody waits for: the next call tries again."""
    if not task.cancelled():
        task.exception()
