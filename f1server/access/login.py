"""Logins: SCRAM-SHA-256 in two calls, between which the server keeps nothing.

What it must remember of the first call, the client gives back with the second, signed: so each may be answered by
another f1server, and nobody can fill a server up with logins that never end. For a role that there is not, or that may
not log in, everything goes the same way with a verifier that no password has, made from the name and a secret: the
salt is always the same one, as that of a role is.
"""

import base64
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.scram import (
    ITERATIONS,
    ClientFirst,
    Verifier,
    parse_verifier,
    read_client_first,
    server_first,
    verified,
)
from f1server.access.guesses import Guesses
from f1server.access.keys import SigningKeys
from f1server.access.tokens import Purpose, Session, fingerprint
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.roles import Role
from f1server.catalog.store import DEFAULT_DATABASE

__all__ = ["Challenge", "LoggedIn", "Logins"]

_CHALLENGE_US = 30_000_000
_NONCE_BYTES = 18


@dataclass(frozen=True, slots=True)
class Challenge:
    """The answer to a first message; ``state`` comes back with the second."""

    message: str
    state: bytes


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The answer to a second message that proves the password."""

    message: str
    token: bytes
    valid_ms: int


class Logins:
    """The logins at one server."""

    def __init__(
        self,
        leases: SchemaLeases,
        keys: SigningKeys,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        token_ms: int,
        guesses: Guesses | None = None,
    ) -> None:
        """``token_ms``: for how long tokens are good; ``random_bytes``: unpredictable ones, but in tests."""
        self._leases = leases
        self._keys = keys
        self._clock = clock
        self._random_bytes = random_bytes
        self._token_ms = token_ms
        self._guesses = guesses or Guesses()

    async def begin(self, database: str, client_first: str) -> Challenge:
        """Answer a first message. Raises F1Error INVALID_ARGUMENT."""
        first = read_client_first(client_first)
        _, _, verifier = await self._role(database, first)
        nonce = base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode()
        message = server_first(first, nonce, verifier)
        says = json.dumps([database, client_first, message]).encode()
        return Challenge(message, await self._keys.sign(Purpose.CHALLENGE, says, _CHALLENGE_US))

    async def end(self, state: bytes, client_final: str) -> LoggedIn:
        """Answer a second message. Raises F1Error UNAUTHENTICATED, OVERLOADED, INVALID_ARGUMENT."""
        signed = await self._keys.opened(state, Purpose.CHALLENGE)
        if self._clock.sample().tt.latest > signed.expires_us:
            raise F1Error(Code.UNAUTHENTICATED, "the login took too long; try again")
        database, client_first, challenge = json.loads(signed.says)
        first = read_client_first(client_first)
        async with self._guesses.attempt(first.user, await self._keys.secret()) as attempt:
            home, role, verifier = await self._role(database, first)
            message = verified(first, challenge, client_final, verifier)
            attempt.failed = message is None or role is None
        if message is None or role is None:
            raise F1Error(
                Code.UNAUTHENTICATED, f"there is no role {first.user} that logs in, or not with that password"
            )
        says = Session(home, role.id, fingerprint(role)).to_bytes()
        return LoggedIn(message, await self._keys.sign(Purpose.SESSION, says, self._token_ms * 1_000), self._token_ms)

    async def _role(self, database: str, first: ClientFirst) -> tuple[str, Role | None, Verifier]:
        """Return the role that logs in, the database that it is of, and what proves its password."""
        secret = await self._keys.secret()
        nobody = _nobody(secret, first.user)
        for home in dict.fromkeys((database, DEFAULT_DATABASE)):
            try:
                schema = (await self._leases.current(home)).schema
            except F1Error as error:
                if error.code is not Code.NOT_FOUND:
                    raise
                continue
            role = schema.roles_by_name.get(first.user.lower())
            if role is not None and role.login and role.verifier:
                return home, role, parse_verifier(role.verifier)
        return database, None, nobody


def _nobody(secret: bytes, user: str) -> Verifier:
    """Return a verifier that no password has."""
    name = user.lower().encode("utf-8", "surrogatepass")
    parts = [hmac.digest(secret, what + name, "sha256") for what in (b"salt ", b"stored ", b"server ")]
    return Verifier(ITERATIONS, parts[0][:16], parts[1], parts[2])
