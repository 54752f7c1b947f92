"""The data directory of a spanserver: whose it is, that one process has it, that its file is whole, what errors mean.

Everything here happens before or beside the memory map, because a map of a damaged file kills the process.
"""

import errno
import fcntl
import os
from pathlib import Path

import lmdb
import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine.base import MAX_KEY_BYTES, EngineFailed
from spanstore.engine.keyspace import server_meta_key
from spanstore.engine.pages import META_FLAGS, META_MAGIC, META_VERSION, Fault, Meta, PageFile, Walk
from spanstore.engine.sealing import unseal

FORMAT_VERSION = 2
"""Version of the layout on disk; another one is refused at open. 2: every record has a checksum."""

DATA_FILE = "data.mdb"
LOCK_FILE = "engine.lock"
IDENTITY_FILE = "IDENTITY"
IDENTITY_KEY = server_meta_key("identity")

_ABOVE_ALL_KEYS = b"\xff" * MAX_KEY_BYTES

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
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
    if number in DISK_FULL_ERRNOS:
        return EngineFailed(Code.DISK_FULL, f"{what}: {error}; free space on the disk of server.data_dir")
    if isinstance(error, _CORRUPTION):
        return EngineFailed(Code.DATA_CORRUPTION, f"{what}: {error}; discard this replica and let it be rebuilt")
    if number == errno.EROFS:
        text = f"{what}: {error}; the disk of server.data_dir is read-only: see the system's log, mount it again"
        return EngineFailed(Code.UNAVAILABLE, text, details={"errno": str(number)})
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


def check_file(path: Path, *, must_exist: bool, live: bool = False) -> int:
    """Check the data file as far as that is quick, without mapping it; return its page size, 0 if there is none.

    Both meta pages must fit together (a flipped bit could bring an older state back, which forgets promises), the file
    must be as long as they say, and the ways to the first and the last leaf must be sound. Of a ``live`` file, which
    another process may be writing, the length alone is checked: nothing else of it stands still.
    Raises EngineFailed DATA_CORRUPTION.
    """
    file = path / DATA_FILE
    try:
        pages = PageFile(file)
    except FileNotFoundError:
        if not must_exist:
            return 0
        raise _damaged(f"{file} is missing") from None
    except OSError as error:
        raise failure_of(error, f"reading {file} failed") from error
    try:
        metas = pages.metas()
        length = file.stat().st_size  # after the meta pages: a live file grows
        if length == 0 and not must_exist:
            return 0
        meta = _newest_meta(file, length, metas, live)
        if live:
            return meta.page_bytes
        for tree, integers in ((meta.main, False), (meta.free, True)):
            for start in (b"", _ABOVE_ALL_KEYS):
                found = next(Walk(pages, meta, tree, integer_keys=integers).leaves(start), None)
                if isinstance(found, Fault):
                    raise _damaged(f"{file}, {found}")
        return meta.page_bytes
    except OSError as error:
        raise failure_of(error, f"reading {file} failed") from error
    finally:
        pages.close()


def _newest_meta(file: Path, length: int, metas: tuple[Meta | None, Meta | None], live: bool) -> Meta:
    first, second = metas
    if first is None or second is None:
        raise _damaged(f"{file} is cut short ({length} bytes)")
    for number, meta in enumerate((first, second)):
        wanted = (META_MAGIC, META_VERSION, first.page_bytes, 0)
        if meta.header != (number, META_FLAGS) or (meta.magic, meta.version, meta.page_bytes, meta.main_pad) != wanted:
            raise _damaged(f"{file} is no LMDB file")
    old, new = sorted((first, second), key=lambda meta: meta.transaction)
    if length < (new.last_page + 1) * new.page_bytes:
        raise _damaged(f"{file} has {length} of {(new.last_page + 1) * new.page_bytes} bytes: it was truncated")
    # Each transaction writes the meta page that the one before did not.
    in_turn = new.transaction == old.transaction + 1 and first.transaction % 2 == 0
    if live:
        return new
    if not (in_turn or new.transaction == 0) or new.last_page < old.last_page or new.main.flags:
        raise _damaged(f"the meta pages of {file} do not fit together")
    return new


def _damaged(what: str) -> EngineFailed:
    repair = "discard this replica's data directory and let it be rebuilt from the others"
    return EngineFailed(Code.DATA_CORRUPTION, f"{what}; {repair}")


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
    stored = _decode_identity(encoded, path)
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


def _decode_identity(encoded: bytes, path: Path) -> Identity:
    """Read the identity record, also that of format 1, which had no checksum."""
    try:
        return msgspec.msgpack.decode(unseal(IDENTITY_KEY, encoded), type=Identity)
    except (F1Error, msgspec.DecodeError, UnicodeDecodeError):
        try:
            old = msgspec.msgpack.decode(encoded, type=Identity)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _damaged(f"the identity record of {path} is damaged") from None
        if old.format == FORMAT_VERSION:
            raise _damaged(f"the identity record of {path} has no checksum") from None
        return old


def read_identity_file(path: Path) -> Identity | None:
    """Return what the file beside the data says: that data was there, so that their loss is noticed."""
    try:
        return msgspec.json.decode((path / IDENTITY_FILE).read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        text = (
            f"cannot read {path / IDENTITY_FILE}, which says whose data this is: {error}; put back a copy of the "
            "file, or delete the whole data directory and have its replicas built anew (f1 cluster rebuild)"
        )
        raise F1Error(Code.BAD_DATA_DIR, text) from error


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
