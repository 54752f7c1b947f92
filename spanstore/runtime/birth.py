"""The first start of a cluster, told apart from the start of a server that has lost its disk.

Purpose
-------
A server that begins with an empty directory is either a founder of a new cluster or one whose disk was lost. The two
must not be confused: a voter that has forgotten what it promised and accepted can elect a second leader and overwrite
what was chosen. Its configuration file says the same in both cases.

The rule
--------
Every directory has a random *nonce* of its own, made when it is first opened. A founder waits until it has heard, in
this very process, from every other founder:

* if all of them are unborn, nobody has ever promised anything, and the set of all nonces is the cluster's birth
  certificate, which each stores durably before its first vote;
* if one is born and its certificate has this directory's nonce, this server was counted as unborn at the birth: it
  adopts the certificate and begins with empty replicas, as it would have then;
* if one is born and its certificate has another nonce for this server, the disk of this server was lost. It joins as a
  stranger: its replicas' names are dead, and it holds nothing until a leader makes it a member under a new name.

Why all of them, and not a majority: a majority of the empty-handed may include the one that was lost, while the rest of
the quorum that chose something is the one that is not asked.

Two different certificates could only be made around a disk that is lost during the birth itself; whoever holds either
has then seen all others unborn after that loss, so nothing had been promised.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Engine, Reader, WriteBatch

_log = logging.getLogger(__name__)

_NONCE = keyspace.server_meta_key("nonce")
_CERTIFICATE = keyspace.server_meta_key("birth")
_PERIOD_S = 0.1
_REPORT_S = 5.0

Certificate = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Hello:
    """What one server says of itself: its directory's nonce, and the certificate if it is born."""

    nonce: bytes
    certificate: Mapping[str, bytes] | None


def load_certificate(reader: Reader) -> Certificate | None:
    """Return the birth certificate of a directory, None before its birth. Raises DATA_CORRUPTION."""
    data = reader.get(_CERTIFICATE)
    if data is None:
        return None
    try:
        return msgspec.msgpack.decode(data, type=Certificate)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the birth certificate cannot be read: {error}") from error


def has_replicas(reader: Reader) -> bool:
    """Tell whether a directory holds anything of any group: it was born before certificates were written."""
    start, _ = keyspace.group_range(0)
    _, end = keyspace.group_range(keyspace.MAX_GROUP)
    return reader.seek_first(start, end) is not None


def verdict(me: str, nonce: bytes, founders: tuple[str, ...], heard: Mapping[str, Hello]) -> Certificate | None:
    """Return the certificate to adopt, None as long as nothing is certain.

    ``heard`` is what the founders said to this process. The certificate may have another nonce for ``me``: then this
    server's disk was lost.
    """
    for name in sorted(heard):
        certificate = heard[name].certificate
        if certificate is not None:
            return dict(certificate)
    if any(name not in heard for name in founders if name != me):
        return None
    return {name: nonce if name == me else heard[name].nonce for name in founders}


class Birth:
    """Finds out what an empty directory is, and answers the others meanwhile and afterwards."""

    def __init__(self, me: str, founders: tuple[str, ...], engine: Engine, rng: random.Random) -> None:
        self._me = me
        self._founders = founders
        self._engine = engine
        with engine.snapshot() as reader:
            self.certificate = load_certificate(reader)
            self._nonce = reader.get(_NONCE) or b""
            self.before_certificates = self.certificate is None and has_replicas(reader)
        if not self._nonce:
            self._nonce = rng.randbytes(16)

    @property
    def home(self) -> str:
        """A name for this data directory that no other one has."""
        return self._nonce[:6].hex()

    @property
    def born(self) -> bool:
        """Whether it is certain what this directory is. A server that is no founder has nothing to find out."""
        return self.certificate is not None or self.before_certificates or self._me not in self._founders

    @property
    def lost(self) -> bool:
        """Whether this server founded the cluster with a disk that it has no more."""
        certificate = self.certificate
        return certificate is not None and certificate.get(self._me, self._nonce) != self._nonce

    def hello(self) -> Hello:
        """Return what to say to another server that asks. Only after :meth:`prepare`."""
        if self.before_certificates:
            # Its founders were born without one: whoever is empty-handed has lost its disk.
            return Hello(self._nonce, {self._me: self._nonce})
        return Hello(self._nonce, self.certificate)

    async def prepare(self) -> None:
        """Make the nonce durable: nobody is told one that a crash could change. Raises EngineFailed."""
        batch = WriteBatch()
        batch.put(_NONCE, self._nonce)
        await self._engine.commit(batch)

    async def settle(self, ask: Callable[[str], Awaitable[Hello]]) -> None:
        """Wait until it is certain what this directory is, and make that durable.

        ``ask`` greets a founder; its F1Errors are waited out.
        """
        heard: dict[str, Hello] = {}
        waited = 0.0

        async def greet(name: str) -> None:
            try:
                heard[name] = await ask(name)
            except F1Error as error:
                _log.debug("%s does not say what it is: %s", name, error)

        while not self.born:
            missing = [name for name in self._founders if name != self._me and name not in heard]
            await asyncio.gather(*(greet(name) for name in missing))
            certificate = verdict(self._me, self._nonce, self._founders, heard)
            if certificate is not None:
                await self._adopt(certificate)
                return
            await asyncio.sleep(_PERIOD_S)
            waited += _PERIOD_S
            if waited >= _REPORT_S:
                waited = 0.0
                silent = ", ".join(name for name in missing if name not in heard)
                _log.warning("a new cluster begins when all its first servers are up; still waiting for %s", silent)

    async def _adopt(self, certificate: Certificate) -> None:
        batch = WriteBatch()
        # A certificate from before certificates names one server only; this one's absence in it says that it is lost.
        certificate.setdefault(self._me, b"")
        batch.put(_CERTIFICATE, msgspec.msgpack.encode(certificate))
        await self._engine.commit(batch)
        self.certificate = certificate
        if self.lost:
            _log.error(
                "%s founded this cluster, but its data directory is empty: it was lost. Its replicas must be rebuilt "
                "from the others (f1 group rebuild-all %s); until then it holds none",
                self._me,
                self._me,
            )
