"""What EXPLAIN ANALYZE adds to a distributed plan: rows, bytes and time of each part at each worker."""

from typing import Any

from f1server.dist.stats import SERVER, PartStats, RunStats

__all__ = ["add_measures"]


def add_measures(plan: dict[str, Any], stats: RunStats) -> None:
    """Give each part of an explained plan, a JSON value, a list ``measured`` with an object for each worker."""
    plan["attempts"] = stats.attempt
    plan["slaves"] = list(stats.workers)
    for part in plan["parts"]:
        part["measured"] = [_measures(s) for s in stats.parts if s.part == part["id"]]


def _measures(stats: PartStats) -> dict[str, Any]:
    return {
        "worker": _name(stats.worker),
        "read": [
            {"relation": r.relation, "scan": r.scan, "rows": r.rows, "bytes": r.bytes, "spooled": r.spooled}
            for r in stats.reads
        ],
        "rows": stats.rows_out,
        "sent": [
            {"part": s.consumer, "to": _name(s.destination), "rows": s.rows, "bytes": s.bytes} for s in stats.sent
        ],
        "scan_ms": round(stats.scan_us / 1000, 1),
        "input_ms": round(stats.input_us / 1000, 1),
        "evaluate_ms": round(stats.evaluate_us / 1000, 1),
    }


def _name(worker: str) -> str:
    return "f1server" if worker == SERVER else worker
