"""From what a session shows to a role of the database that is asked, for each request."""

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1server.access.keys import SigningKeys
from f1server.access.rights import EVERYBODY, Caller
from f1server.access.tokens import Purpose, Session, fingerprint, refused
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.store import DEFAULT_DATABASE

__all__ = ["Gate"]

_KEPT = 4_096
_SERVER_LIFE_US = 60_000_000


class Gate:
    """Lets in who has a valid token."""

    def __init__(self, leases: SchemaLeases, keys: SigningKeys, clock: Clock) -> None:
        self._leases = leases
        self._keys = keys
        self._clock = clock
        self._known: dict[bytes, tuple[Session, int]] = {}
        """Tokens that were looked at before: what they say, and until when they are good."""

    async def admit(self, token: bytes, database: str | None) -> Caller:
        """Return who asks about a database; None: about none.

        Raises F1Error UNAUTHENTICATED, PERMISSION_DENIED for a role of another database.

        A superuser of the default database is one in all databases: how else would a new one get its first role?
        """
        session, expires_us = self._known.get(token) or await self._opened(token)
        if self._clock.sample().tt.latest > expires_us:
            self._known.pop(token, None)
            raise refused("the session's token has expired")
        try:
            schema = (await self._leases.current(session.database)).schema
        except F1Error as error:
            if error.code is Code.NOT_FOUND:
                raise refused(f"the database {session.database} of the role is gone") from error
            raise
        role = schema.roles_by_id.get(session.role_id)
        if role is None or not role.login or fingerprint(role) != session.fingerprint:
            raise refused("the role was dropped, may not log in any more, or has another password")
        if database is None or session.database == database:
            return Caller(role.id, role.name)
        if role.superuser and session.database == DEFAULT_DATABASE:
            return EVERYBODY
        raise F1Error(
            Code.PERMISSION_DENIED,
            f"the role {role.name} belongs to the database {session.database}, not to {database}",
        )

    async def _opened(self, token: bytes) -> tuple[Session, int]:
        if not token:
            raise refused("this cluster wants to know who asks")
        signed = await self._keys.opened(token, Purpose.SESSION)
        found = Session.from_bytes(signed.says), signed.expires_us
        while len(self._known) >= _KEPT:
            del self._known[next(iter(self._known))]
        self._known[token] = found
        return found

    async def server_token(self) -> bytes:
        """Return what shows another f1server of the cluster that this is one."""
        return await self._keys.sign(Purpose.SERVER, b"", _SERVER_LIFE_US)

    async def admit_server(self, token: bytes) -> None:
        """Raise F1Error UNAUTHENTICATED unless another f1server of the cluster made the token."""
        signed = await self._keys.opened(token, Purpose.SERVER)
        if self._clock.sample().tt.latest > signed.expires_us:
            raise refused("the token of the server has expired")
