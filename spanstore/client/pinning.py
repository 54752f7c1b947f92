"""Pins as clients make, refresh and remove them; :mod:`spanstore.placement.pins` says why they hold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from f1common.errors import Code, F1Error
from spanstore.client.values import ExpectVersion, KeyRange, Precondition, Version, Write
from spanstore.placement.pins import Pin, decode_pin, encode_pin, pin_key, pin_range
from spanstore.placement.settings import SETTINGS_KEY, Settings, decode_settings, encode_settings

if TYPE_CHECKING:
    from spanstore.client.client import SpanClient

_MICROS = 1_000_000
_CHANGE_US = 10_000_000
_SHORTEST_KEEP_S, _LONGEST_KEEP_S = 1, 365 * 86_400
_AHEAD_US = 60_000_000
"""How far ahead of now a pin may be: further is an error of units, and would hold nothing back for long."""


class Pins:
    """The pins of a cluster: timestamps that stay readable for longer than ``storage.version_keep_ms``."""

    def __init__(self, client: "SpanClient") -> None:
        self._client = client

    async def add(self, name: str, ts: int, *, ttl_s: float = 600.0, owner: str = "") -> Pin:
        """Pin ``ts`` (microseconds since the epoch) for ``ttl_s``, unless it is refreshed. ``owner`` is for people.

        Once this returns, every group honours the pin. Raises SNAPSHOT_TOO_OLD if versions at ``ts`` may be gone,
        ALREADY_EXISTS if the name is in use, INVALID_ARGUMENT, UNAVAILABLE, UNKNOWN_OUTCOME (ambiguous).
        """
        if ts <= 0 or ttl_s <= 0:
            raise F1Error(Code.INVALID_ARGUMENT, "a pin needs a timestamp and a time to live above 0")
        version, known, read_ts = await self._read(name)
        settings, unchanged = await self._settings()
        keep_us = settings.version_keep_us
        if ts > read_ts + _AHEAD_US:
            text = f"timestamp {ts} lies {(ts - read_ts) / 1e6:.0f} s in the future; it is in microseconds since 1970"
            raise F1Error(Code.INVALID_ARGUMENT, text)
        if known is not None and not known.expired(read_ts):
            text = f"there is a pin {name} of {known.ts} already: refresh or remove it, or choose another name"
            raise F1Error(Code.ALREADY_EXISTS, text)
        made = Pin(name, ts, read_ts + int(ttl_s * _MICROS), owner)
        # The fence on which everything rests: see the module docstring of spanstore.placement.pins.
        deadline = min(ts + keep_us, made.expires_ts)
        too_old = F1Error(
            Code.SNAPSHOT_TOO_OLD,
            f"timestamp {ts} is older than the {keep_us / 1e6:g} s for which versions are kept: pin a newer one",
            details={"ts": str(ts), "keep_us": str(keep_us)},
        )
        if ts < settings.gone_ts:
            raise too_old
        try:
            await self._put(version, made, deadline, [unchanged])
        except F1Error as error:
            if error.code is not Code.FENCED or deadline == made.expires_ts:
                raise
            raise too_old from error
        return made

    async def keep(self, seconds: float | None = None) -> float:
        """Return for how many seconds old versions are kept, pins aside, after a change to ``seconds`` if given.

        Raises INVALID_ARGUMENT, ABORTED (somebody else changes it, retry), UNAVAILABLE.
        """
        if seconds is not None and not _SHORTEST_KEEP_S <= seconds <= _LONGEST_KEEP_S:
            text = f"versions are kept for {_SHORTEST_KEEP_S} to {_LONGEST_KEEP_S} seconds, not {seconds:g}"
            raise F1Error(Code.INVALID_ARGUMENT, text)
        now = self._client.strong_timestamp()
        settings, unchanged = await self._settings()
        if seconds is None or int(seconds * _MICROS) == settings.version_keep_us:
            return settings.version_keep_us / _MICROS
        # Until the change has committed, marks rise by what was kept before.
        deadline = now + _CHANGE_US
        gone_ts = max(settings.gone_ts, deadline - settings.version_keep_us)
        changed = Settings(int(seconds * _MICROS), settings.outcome_keep_us, gone_ts)
        await self._client.commit([Write(SETTINGS_KEY, encode_settings(changed))], [unchanged], deadline=deadline)
        return seconds

    async def _settings(self) -> tuple[Settings, Precondition]:
        version = (await self._client.read([SETTINGS_KEY])).versions[0]
        if version is None or version.value is None:
            text = "the cluster's settings are not stored yet; retry"
            raise F1Error(Code.UNAVAILABLE, text, retryable=True)
        return decode_settings(version.value), ExpectVersion(SETTINGS_KEY, version.ts)

    async def refresh(self, name: str, *, ttl_s: float = 600.0) -> Pin:
        """Let a pin live for ``ttl_s`` from now, if that is longer.

        Raises NOT_FOUND if there is none that has not expired: versions that it kept may be gone.
        """
        version, known, read_ts = await self._read(name)
        if known is None or known.expired(read_ts):
            raise _gone(name)
        made = Pin(name, known.ts, max(known.expires_ts, read_ts + int(ttl_s * _MICROS)), known.owner)
        try:
            await self._put(version, made, known.expires_ts)
        except F1Error as error:
            if error.code is not Code.FENCED:
                raise
            raise _gone(name) from error
        return made

    async def remove(self, name: str) -> bool:
        """Remove a pin; tell whether there was one, expired or not."""
        version, known, _ = await self._read(name)
        if known is None or version is None:
            return False
        await self._client.commit([Write(pin_key(name), None)], [ExpectVersion(pin_key(name), version.ts)])
        return True

    async def list(self) -> list[Pin]:
        """Return the pins that have not expired, by name."""
        found = await self._client.read(ranges=[KeyRange(*pin_range())])
        pins = [decode_pin(row.value) for row in found.ranges[0]]
        return [pin for pin in pins if not pin.expired(found.timestamp)]

    async def _read(self, name: str) -> tuple[Version | None, Pin | None, int]:
        found = await self._client.read([pin_key(name)])
        version = found.versions[0]
        known = None if version is None or version.value is None else decode_pin(version.value)
        return version, known, found.timestamp

    async def _put(
        self, version: Version | None, pin: Pin, deadline: int, expected: Sequence[Precondition] = ()
    ) -> None:
        key = pin_key(pin.name)
        seen_ts = version.ts if version is not None and version.value is not None else 0
        await self._client.commit(
            [Write(key, encode_pin(pin))], [ExpectVersion(key, seen_ts), *expected], deadline=deadline
        )


def _gone(name: str) -> F1Error:
    text = f"there is no pin {name}, or it has expired: pin a newer timestamp, and refresh it in time"
    return F1Error(Code.NOT_FOUND, text)
