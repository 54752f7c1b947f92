"""Checking a data directory that no server has open: all of it, in one state, down to the list of free pages."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine.directory import DATA_FILE, check_file, lock_directory, read_identity_file
from spanstore.engine.keyspace import SERVER
from spanstore.engine.pages import Fault, Meta, PageFile, Walk, free_pages
from spanstore.scrub.records import Finding, RecordCheck


class Report(msgspec.Struct, frozen=True):
    """What a check of a directory saw and found."""

    path: str
    server: str
    pages: int
    records: int
    bytes: int
    findings: tuple[Finding, ...]


def check_directory(path: Path) -> Report:
    """Read everything in ``path``. Raises F1Error NOT_FOUND if no data are there, BAD_DATA_DIR if they are in use."""
    identity = read_identity_file(path)
    if identity is None and not (path / DATA_FILE).exists():
        raise F1Error(Code.NOT_FOUND, f"{path} holds no data of a spanserver")
    server = identity.server if identity is not None else ""
    lock = lock_directory(path)
    try:
        check_file(path, must_exist=True)
        pages = PageFile(path / DATA_FILE)
        try:
            meta = max((m for m in pages.metas() if m is not None), key=lambda m: m.transaction)
            records = RecordCheck()
            findings = tuple(_findings(pages, meta, records))
        finally:
            pages.close()
    except F1Error as error:
        return Report(str(path), server, 0, 0, 0, (Finding(SERVER, error.message),))
    finally:
        os.close(lock)
    return Report(str(path), server, meta.last_page + 1, records.records, records.bytes, findings)


def _findings(pages: PageFile, meta: Meta, records: RecordCheck) -> Iterator[Finding]:
    walk = Walk(pages, meta, meta.main)
    torn = False
    for found in walk.leaves():
        if isinstance(found, Fault):
            torn = True
            yield Finding(SERVER, str(found), found.low.hex())
            continue
        for key, stored in found.items:
            yield from records.check(key, stored)
    if not torn:
        # With a page missing, whatever follows from it would be said again in other words.
        yield from records.groups()
        if walk.totals():
            yield Finding(SERVER, f"the tree has {walk.totals()}")
    free, faults, own = free_pages(pages, meta)
    for fault in faults:
        yield Finding(SERVER, f"free pages, {fault}")
    used = walk.visited.pages
    for page in sorted((free & used) | (own & used) | (free & own)):
        yield Finding(SERVER, f"page {page} is in use and listed as free, or used twice")
    lost = set(range(2, meta.last_page + 1)) - free - used - own
    if lost and not torn and not faults:
        yield Finding(SERVER, f"{len(lost)} pages are neither in use nor free, page {min(lost)} the first")
