"""SCRAM-SHA-256 without channel binding (RFC 5802, RFC 7677): both sides of the exchange, pure.

Who logs in proves that it knows the password, and the server that it knows the verifier; neither the password nor
anything that could be used in its place travels. A verifier is what the server keeps, in the form of PostgreSQL:
``SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey``, all but the number in base64.

============== ========= ==================================================
message        sent by   text
============== ========= ==================================================
client-first   client    ``n,,n=user,r=client nonce``
server-first   server    ``r=both nonces,s=salt,i=iterations``
client-final   client    ``c=biws,r=both nonces,p=proof``
server-final   server    ``v=signature``
============== ========= ==================================================

Passwords are normalised by NFKC, which is what SASLprep comes to for all but exotic characters.
"""

import base64
import binascii
import hashlib
import hmac
import re
import unicodedata
from dataclasses import dataclass, field

from f1common.errors import Code, F1Error

__all__ = [
    "ITERATIONS",
    "ClientExchange",
    "ClientFirst",
    "Verifier",
    "is_verifier",
    "make_verifier",
    "parse_verifier",
    "read_client_first",
    "server_first",
    "verified",
]

ITERATIONS = 16_384
"""Rounds of PBKDF2 for new verifiers: what a guess costs whoever has stolen one, and each login its client."""

_MOST_ITERATIONS = 10_000_000
_FEWEST_ITERATIONS = 4_096
_LONGEST_TEXT = 4_096
_LONGEST_PASSWORD = 1_024
_PREFIX = "SCRAM-SHA-256$"
_GS2 = "n,,"
_CHANNEL = base64.b64encode(_GS2.encode()).decode()
_NONCE = re.compile(r"[!-+\--~]{16,256}")


@dataclass(frozen=True, slots=True)
class Verifier:
    """What proves a password, and is no password: it does not let anybody log in."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def text(self) -> str:
        """Return it as PostgreSQL writes it."""
        return f"{_PREFIX}{self.iterations}:{_b64(self.salt)}${_b64(self.stored_key)}:{_b64(self.server_key)}"


def make_verifier(password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """Return the verifier of a password. It takes some milliseconds. Raises F1Error INVALID_ARGUMENT."""
    salted = _salted(password, salt, iterations)
    return Verifier(iterations, salt, _sha(_mac(salted, b"Client Key")), _mac(salted, b"Server Key"))


def is_verifier(text: str) -> bool:
    """Does a text have the form of a verifier, rather than that of a password?"""
    return text.startswith(_PREFIX)


def parse_verifier(text: str) -> Verifier:
    """Read a verifier. Raises F1Error INVALID_ARGUMENT, without the text."""
    match = re.fullmatch(r"SCRAM-SHA-256\$(\d{1,8}):([^$:]+)\$([^$:]+):([^$:]+)", text)
    try:
        if match is None:
            raise ValueError
        iterations = int(match[1])
        salt, stored, server = (base64.b64decode(part, validate=True) for part in match.groups()[1:])
        if not (_FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS and 8 <= len(salt) <= 64):
            raise ValueError
        if len(stored) != 32 or len(server) != 32:
            raise ValueError
    except (ValueError, binascii.Error):
        raise F1Error(
            Code.INVALID_ARGUMENT,
            "a verifier is written SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey, with at least "
            f"{_FEWEST_ITERATIONS} iterations; this one is not",
        ) from None
    return Verifier(iterations, salt, stored, server)


# ---------------------------------------------------------------------- the server's side


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message: who logs in, with which nonce; ``bare`` is what is signed of it."""

    user: str
    nonce: str
    bare: str


def read_client_first(message: str) -> ClientFirst:
    """Read the client's first message. Raises F1Error INVALID_ARGUMENT."""
    match = re.fullmatch(r"n,,(n=([^,]*),r=([^,]*))", message) if len(message) <= _LONGEST_TEXT else None
    if match is None or not _NONCE.fullmatch(match[3]) or re.search(r"=(?!2C|3D)", match[2]):
        raise _no_message("client-first-message")
    return ClientFirst(match[2].replace("=2C", ",").replace("=3D", "="), match[3], match[1])


def server_first(first: ClientFirst, nonce: str, verifier: Verifier) -> str:
    """Return the challenge: both nonces, and how the password is to be hashed."""
    return f"r={first.nonce}{nonce},s={_b64(verifier.salt)},i={verifier.iterations}"


def verified(first: ClientFirst, challenge: str, final: str, verifier: Verifier) -> str | None:
    """Return the server's last message if the client's proves the password, else None.

    Takes the same time for every proof of the right form. Raises F1Error INVALID_ARGUMENT for what is no message.
    """
    match = re.fullmatch(r"(c=([^,]*),r=([^,]*)),p=([^,]*)", final) if len(final) <= _LONGEST_TEXT else None
    proof = _unb64(match[4]) if match is not None else b""
    if match is None or len(proof) != 32 or match[2] != _CHANNEL:
        raise _no_message("client-final-message")
    signed = f"{first.bare},{challenge},{match[1]}".encode()
    key = _xor(proof, _mac(verifier.stored_key, signed))
    same_nonce = hmac.compare_digest(f"r={match[3]},".encode(), challenge.encode()[: len(match[3]) + 3])
    right = hmac.compare_digest(_sha(key), verifier.stored_key)
    return f"v={_b64(_mac(verifier.server_key, signed))}" if right and same_nonce else None


# ---------------------------------------------------------------------- the client's side


class ClientExchange:
    """One login, as its client sees it."""

    def __init__(self, user: str, password: str, nonce: str) -> None:
        """``nonce``: 16 or more printable characters that nobody can guess, without commas."""
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = ""

    def first(self) -> str:
        """Return the first message."""
        return _GS2 + self._bare

    def final(self, challenge: str) -> str:
        """Answer the server's challenge. It takes some milliseconds. Raises F1Error UNAUTHENTICATED."""
        match = re.fullmatch(r"r=([^,]+),s=([^,]+),i=(\d{1,8})", challenge)
        salt = _unb64(match[2]) if match is not None else b""
        if match is None or not salt or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise F1Error(Code.UNAUTHENTICATED, "the server's challenge is none; is it an f1server?")
        iterations = int(match[3])
        if not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            # Fewer would let a false server find the password by trying.
            raise F1Error(Code.UNAUTHENTICATED, f"the server asks for {iterations} iterations: that is not safe")
        salted = _salted(self._password, salt, iterations)
        key = _mac(salted, b"Client Key")
        start = f"c={_CHANNEL},r={match[1]}"
        signed = f"{self._bare},{challenge},{start}".encode()
        self._signature = f"v={_b64(_mac(_mac(salted, b'Server Key'), signed))}"
        return f"{start},p={_b64(_xor(key, _mac(_sha(key), signed)))}"

    def check(self, last: str) -> None:
        """Check that the server knows the verifier. Raises F1Error UNAUTHENTICATED."""
        if not self._signature or not hmac.compare_digest(last.encode(), self._signature.encode()):
            raise F1Error(Code.UNAUTHENTICATED, "the server did not prove that it knows the role's password")


def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    text = unicodedata.normalize("NFKC", password)
    if not text or len(text) > _LONGEST_PASSWORD or "\x00" in text:
        raise F1Error(Code.INVALID_ARGUMENT, f"a password has 1 to {_LONGEST_PASSWORD} characters")
    return hashlib.pbkdf2_hmac("sha256", text.encode("utf-8", "surrogatepass"), salt, iterations)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def _no_message(what: str) -> F1Error:
    return F1Error(Code.INVALID_ARGUMENT, f"this is no {what} of SCRAM-SHA-256")
