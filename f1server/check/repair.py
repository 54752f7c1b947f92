"""Making index entries right again: few at a time, from rows that are read under locks."""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from f1common.errors import Code, F1Error
from f1common.rpc.backoff import Backoff
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.catalog.schema import ElementState, Index, Schema, Table
from f1server.check.entries import Found, claims, entries_of, names_no_row, owner_of, row_in
from f1server.check.findings import Suspect
from f1server.rows.keys import IndexLayout, index_layout, row_key, split_row_key
from f1server.rows.values import Value
from spanstore.client import SpanClient, Transaction, Version

__all__ = ["Repairer"]

_AT_ONCE = 20
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class _Case:
    """A suspect under the schema that is current: an index, and one entry or the entries of one row."""

    where: IndexLayout
    row_key: bytes
    key_values: tuple[Value, ...]
    entry_key: bytes = b""


class Repairer:
    """Repairs entries, for one f1server."""

    def __init__(self, client: SpanClient, leases: SchemaLeases, rng: random.Random) -> None:
        self._client = client
        self._leases = leases
        self._rng = rng

    async def repair(self, database: str, suspects: Sequence[Suspect]) -> list[bool]:
        """Look at suspects again and write what their rows ask for; tell of each whether it is right now.

        It is not if another row with the same values holds the place in a unique index. Raises what the storage tier
        raises; what was repaired before stays.
        """
        done: list[bool] = []
        for start in range(0, len(suspects), _AT_ONCE):
            done += await self._some(database, suspects[start : start + _AT_ONCE])
        return done

    async def _some(self, database: str, suspects: Sequence[Suspect]) -> list[bool]:
        backoff = Backoff(2, 200, 1.7, self._rng)
        priority_ts = 0
        for left in range(_ATTEMPTS - 1, -1, -1):
            tx = self._client.transaction(priority_ts)
            priority_ts = tx.priority_ts
            try:
                async with self._leases.use(database) as leased:
                    return await self._attempt(tx, leased, suspects)
            except F1Error as error:
                await tx.rollback()
                # What may have happened may be done once more: it looks at what is there.
                if not (error.retryable or error.ambiguous or error.code is Code.FENCED) or not left:
                    raise
            except BaseException:
                await tx.rollback()
                raise
            await asyncio.sleep(backoff.next_s())
        raise F1Error(Code.INTERNAL, "a repair was not tried")

    async def _attempt(self, tx: Transaction, leased: Leased, suspects: Sequence[Suspect]) -> list[bool]:
        schema = leased.schema
        entries = await _read(tx, {s.entry_key for s in suspects if s.entry_key}, exclusive=True)
        for suspect in suspects:
            if _is_nobodys(schema, suspect, entries):
                tx.write(suspect.entry_key, None)
        cases = [_case(schema, suspect, entries) for suspect in suspects]
        rows = await _read(tx, {case.row_key for case in cases if case is not None})
        wanted = {key for case in cases if case is not None for key in _expected(case, rows)}
        entries |= await _read(tx, wanted - entries.keys(), exclusive=True)
        others = {key for case in cases if case is not None for key in _other_owners(schema, case, rows, entries)}
        rows |= await _read(tx, others - rows.keys())
        done = [case is None or _settle(tx, schema, case, rows, entries) for case in cases]
        await tx.commit(deadline=leased.deadline())
        return done


async def _read(tx: Transaction, keys: Collection[bytes], *, exclusive: bool = False) -> dict[bytes, Version | None]:
    wanted = sorted(keys)
    if not wanted:
        return {}
    return dict(zip(wanted, (await tx.read(wanted, exclusive=exclusive)).versions, strict=True))


def _case(schema: Schema, suspect: Suspect, entries: Found) -> _Case | None:
    """Return what is to be settled; None: nothing any more, for the index or the entry is gone."""
    found = _index_of(schema, suspect)
    if found is None:
        return None
    where = index_layout(schema, *found)
    if not suspect.entry_key:
        split = split_row_key(schema, suspect.row_key)
        return None if split is None else _Case(where, suspect.row_key, split[1])
    owner = owner_of(where, suspect.entry_key, entries.get(suspect.entry_key))
    if owner is None:
        return None
    return _Case(where, row_key(schema, where.table, owner), owner, suspect.entry_key)


def _is_nobodys(schema: Schema, suspect: Suspect, entries: Found) -> bool:
    """Tell whether a suspect is an entry that names no row: it goes. A row that should have it is found to lack it."""
    found = _index_of(schema, suspect)
    return found is not None and names_no_row(
        index_layout(schema, *found), suspect.entry_key, entries.get(suspect.entry_key)
    )


def _index_of(schema: Schema, suspect: Suspect) -> tuple[Table, Index] | None:
    table = schema.by_id.get(suspect.table_id)
    index = next((i for i in table.indexes if i.id == suspect.index_id), None) if table is not None else None
    return None if table is None or index is None or index.state is ElementState.ABSENT else (table, index)


def _expected(case: _Case, rows: Found) -> Mapping[bytes, tuple[bytes, bool]]:
    """Return the entries that the row should have, by key: value, and whether another row may want the key."""
    row = row_in(case.where.table, case.key_values, rows.get(case.row_key))
    if row is None:
        return {}
    try:
        return entries_of(case.where, row, case.key_values)
    except F1Error:
        return {}


def _other_owners(schema: Schema, case: _Case, rows: Found, entries: Found) -> set[bytes]:
    found = (owner_of(case.where, key, entries.get(key)) for key in _expected(case, rows))
    return {row_key(schema, case.where.table, owner) for owner in found if owner is not None} - {case.row_key}


def _settle(tx: Transaction, schema: Schema, case: _Case, rows: Found, entries: Found) -> bool:
    """Buffer the writes that make a case right; False: they cannot."""
    expected = _expected(case, rows)
    if case.entry_key and case.entry_key not in expected:
        tx.write(case.entry_key, None)
        return True
    if case.where.index.state is ElementState.DELETE_ONLY:
        return True
    keys = [case.entry_key] if case.entry_key else sorted(expected)
    done = [_put(tx, schema, case, key, expected[key][0], rows, entries) for key in keys]
    return all(done)


def _put(tx: Transaction, schema: Schema, case: _Case, key: bytes, value: bytes, rows: Found, entries: Found) -> bool:
    stored = entries.get(key)
    if stored is not None and stored.value == value:
        return True
    owner = owner_of(case.where, key, stored)
    if owner is not None and case.where.index.unique:
        other = row_key(schema, case.where.table, owner)
        if other != case.row_key and claims(case.where, owner, rows.get(other), key):
            return False
    tx.write(key, value)
    return True
