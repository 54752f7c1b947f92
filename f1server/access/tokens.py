"""What a session shows to say who it is: a few facts and when they expire, signed with a key that f1servers share.

============ ============================================================
bytes        what
============ ============================================================
1            format, 1
1            purpose (:class:`Purpose`)
4            number of the signing key, big-endian
8            when it expires, microseconds since the epoch, big-endian
any          what it says
32           HMAC-SHA256 of all before
============ ============================================================

A session's token says which role of which database logged in, and with which password: its fingerprint makes the token
worthless once the password is another one.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from f1common.errors import Code, F1Error
from f1server.catalog.roles import Role

__all__ = ["Purpose", "Session", "Signed", "fingerprint", "key_number", "open_token", "sign"]

_FORMAT = 1
_HEAD, _MAC = 14, 32
_LONGEST = 16_384


class Purpose(IntEnum):
    """What a token is for; one for something else is none."""

    SESSION = 1
    SERVER = 2
    """Another f1server of the cluster."""
    CHALLENGE = 3
    """A login of which the first message was answered."""


@dataclass(frozen=True, slots=True)
class Signed:
    """What a token says, and until when (microseconds since the epoch)."""

    says: bytes
    expires_us: int


@dataclass(frozen=True, slots=True)
class Session:
    """Which role of which database logged in, and with which password."""

    database: str
    role_id: int
    fingerprint: bytes

    def to_bytes(self) -> bytes:
        """Return it as a token says it."""
        return self.role_id.to_bytes(8, "big") + self.fingerprint + self.database.encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Session":
        """Read what :meth:`to_bytes` wrote."""
        return cls(data[16:].decode(), int.from_bytes(data[:8], "big"), data[8:16])


def fingerprint(role: Role) -> bytes:
    """Return 8 bytes that change with the role's password."""
    return hashlib.sha256(role.verifier.encode()).digest()[:8]


def sign(purpose: Purpose, says: bytes, expires_us: int, number: int, key: bytes) -> bytes:
    """Return a token."""
    body = bytes((_FORMAT, purpose)) + number.to_bytes(4, "big") + expires_us.to_bytes(8, "big") + says
    return body + hmac.digest(key, body, "sha256")


def key_number(token: bytes) -> int:
    """Return which key a token says it is signed with. Raises F1Error UNAUTHENTICATED for what is no token."""
    if not _HEAD + _MAC <= len(token) <= _LONGEST or token[0] != _FORMAT:
        raise refused("this is no token of an f1server")
    return int.from_bytes(token[2:6], "big")


def open_token(token: bytes, purpose: Purpose, key: Callable[[int], bytes | None]) -> Signed:
    """Return what a token says, expired or not. Raises F1Error UNAUTHENTICATED for one that is not signed so."""
    secret = key(key_number(token))
    body, mac = token[:-_MAC], token[-_MAC:]
    if secret is None or not hmac.compare_digest(hmac.digest(secret, body, "sha256"), mac) or body[1] != purpose:
        raise refused("the token was not signed by this cluster, or too long ago")
    return Signed(body[_HEAD:], int.from_bytes(body[6:14], "big"))


def refused(why: str) -> F1Error:
    """Return UNAUTHENTICATED, with what to do."""
    return F1Error(Code.UNAUTHENTICATED, f"{why}; log in: give a user and a password")
