"""The data directory of a spanserver: whose it is, that one process has it, that its file is whole, what errors mean.

Everything here happens before or beside the memory map, because a map of a damaged file kills the process.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path

import lmdb
import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine.base import EngineFailed
from spanstore.engine.keyspace import server_meta_key

FORMAT_VERSION = 1
"""Version of the layout on disk; another one is refused at open."""

DATA_FILE = "data.mdb"
LOCK_FILE = "engine.lock"
IDENTITY_FILE = "IDENTITY"
IDENTITY_KEY = server_meta_key("identity")

# LMDB 0.9, struct MDB_meta behind the 16 bytes of a page's header: magic, version, address, map size, two MDB_db of
# 48 bytes (the first field of the first is the page size), last page, transaction id. Native order, as LMDB writes.
_META_PAGE = struct.Struct("=16xIIQQI44x48xQQ")
_META_MAGIC = 0xBEEFC0DE
_META_PAGES = 2

_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_CORRUPTION = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)


class Identity(msgspec.Struct, frozen=True):
    """Whose data a directory holds: kept in the environment and checked whenever it is opened for writing."""

    cluster: str
    server: str
    format: int = FORMAT_VERSION
    boot: int = 0
    """How often the directory was opened for writing: names an incarnation of the server."""


def failure_of(error: BaseException, what: str) -> EngineFailed:
    """Translate what LMDB or the operating system raised; ``what`` was being done."""
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", 0)
    if isinstance(error, lmdb.MapFullError):
        return EngineFailed(Code.DISK_FULL, f"{what}: the map is full; enlarge engine.map_bytes or remove data")
    if number in _DISK_FULL_ERRNOS:
        return EngineFailed(Code.DISK_FULL, f"{what}: {error}; free space on the disk of server.data_dir")
    if isinstance(error, _CORRUPTION):
        return EngineFailed(Code.DATA_CORRUPTION, f"{what}: {error}; discard this replica and let it be rebuilt")
    return EngineFailed(Code.UNAVAILABLE, f"{what}: {error}")


def lock_directory(path: Path) -> int:
    """Take the directory for this process; return the descriptor that holds it. Raises BAD_DATA_DIR, OSError."""
    fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise F1Error(
            Code.BAD_DATA_DIR,
            f"{path} is in use by process {holder or 'unknown'}: stop it, or give this server another server.data_dir",
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def check_length(path: Path, *, must_exist: bool) -> int:
    """Check that the data file is as long as its own records say, without mapping it; return its page size, 0 if new.

    Raises EngineFailed DATA_CORRUPTION.
    """
    file = path / DATA_FILE
    try:
        with file.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            first = stream.read(_META_PAGE.size)
            metas = [first]
            if len(first) == _META_PAGE.size:
                stream.seek(_META_PAGE.unpack(first)[4])
                metas.append(stream.read(_META_PAGE.size))
    except FileNotFoundError:
        length, metas = 0, []
    except OSError as error:
        raise failure_of(error, f"reading {file} failed") from error
    if length == 0 and not must_exist:
        return 0
    repair = "discard this replica's data directory and let it be rebuilt from the others"
    if len(metas) < _META_PAGES or any(len(meta) < _META_PAGE.size for meta in metas):
        raise EngineFailed(Code.DATA_CORRUPTION, f"{file} is missing or cut short ({length} bytes); {repair}")
    fields = [_META_PAGE.unpack(meta) for meta in metas]
    if any(meta[0] != _META_MAGIC for meta in fields):
        raise EngineFailed(Code.DATA_CORRUPTION, f"{file} is no LMDB file; {repair}")
    page_bytes, last_page, _ = (int(field) for field in max(fields, key=lambda meta: meta[6])[4:])
    if length < (last_page + 1) * page_bytes:
        raise EngineFailed(
            Code.DATA_CORRUPTION,
            f"{file} has {length} of the {(last_page + 1) * page_bytes} bytes it had: it was truncated; {repair}",
        )
    return page_bytes


def check_identity(env: lmdb.Environment, path: Path, asked: Identity, kept: Identity | None) -> Identity:
    """Return the identity for this incarnation. Raises BAD_DATA_DIR for anybody else's data."""
    with env.begin() as txn:
        encoded = txn.get(IDENTITY_KEY)
        empty = txn.stat()["entries"] == 0
    if encoded is None:
        if kept is not None:
            raise EngineFailed(Code.DATA_CORRUPTION, f"{path} lost its records; discard it and let it be rebuilt")
        if not empty:
            raise F1Error(Code.BAD_DATA_DIR, f"{path} holds another program's LMDB data; set server.data_dir elsewhere")
        return Identity(asked.cluster, asked.server, boot=1)
    stored = msgspec.msgpack.decode(encoded, type=Identity)
    if stored.format != FORMAT_VERSION:
        raise F1Error(
            Code.BAD_DATA_DIR,
            f"{path} has format {stored.format}, this program writes format {FORMAT_VERSION}: use the program that "
            "wrote it, or an empty directory",
        )
    if (stored.cluster, stored.server) != (asked.cluster, asked.server):
        raise F1Error(
            Code.BAD_DATA_DIR,
            f"{path} belongs to server {stored.server!r} of cluster {stored.cluster!r}, not to {asked.server!r} of "
            f"{asked.cluster!r}: correct server.data_dir",
        )
    return Identity(stored.cluster, stored.server, boot=stored.boot + 1)


def read_identity_file(path: Path) -> Identity | None:
    """Return what the file beside the data says: that data was there, so that their loss is noticed."""
    try:
        return msgspec.json.decode((path / IDENTITY_FILE).read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise F1Error(Code.BAD_DATA_DIR, f"cannot read {path / IDENTITY_FILE}: {error}") from error


def write_identity_file(path: Path, identity: Identity) -> None:
    scratch = path / f"{IDENTITY_FILE}.new"
    with scratch.open("wb") as stream:
        stream.write(msgspec.json.encode(identity) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path / IDENTITY_FILE)
    for directory in (path, path.parent):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
