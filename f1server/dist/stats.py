"""What a distributed query cost: for EXPLAIN ANALYZE. Plain values."""

from dataclasses import dataclass

__all__ = ["SERVER", "PartStats", "ReadStats", "RunStats", "SentStats"]

SERVER = ""
"""The name of the f1server among workers."""


@dataclass(frozen=True, slots=True)
class ReadStats:
    """What a part read of one relation: a scan, or an input. ``spooled``: it went through a temporary table."""

    relation: str
    scan: bool
    rows: int
    bytes: int
    spooled: bool = False


@dataclass(frozen=True, slots=True)
class SentStats:
    """Rows for the part ``consumer`` at one worker, by name; at oneself they cost no message."""

    consumer: int
    destination: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartStats:
    """One part at one worker.

    ``scan_us``: until its scans were read; ``input_us``: until its inputs were complete (both from the part's start, at
    a time); ``evaluate_us``: from then until its last row was handed over.
    """

    part: int
    worker: str
    reads: tuple[ReadStats, ...] = ()
    sent: tuple[SentStats, ...] = ()
    rows_out: int = 0
    scan_us: int = 0
    input_us: int = 0
    evaluate_us: int = 0


@dataclass(frozen=True, slots=True)
class RunStats:
    """A whole run: the attempt that succeeded (from 1), its workers, and each part at each of them."""

    attempt: int
    workers: tuple[str, ...]
    parts: tuple[PartStats, ...]
