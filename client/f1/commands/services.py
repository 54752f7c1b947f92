"""What ``f1 status`` shows of the orchestrator's services: who gives out timestamps, and how many locks are held."""

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from f1common.config import Config
from f1common.errors import F1Error
from f1common.pb import f1_pb2, orchestrator_pb2, orchestrator_pb2_grpc
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_exception

__all__ = ["ask_services", "places_in", "places_told", "services_table"]

_TIMEOUT_S = 3.0

Places = tuple[tuple[str, ...], str]
"""Addresses of the timestamp services, and of the lock service: empty if there is none."""


def places_in(directory: Path) -> Places:
    """Return where the services of a local cluster are, as the newest of its files says."""
    for path in sorted((directory / "conf").glob("*.toml")):
        cluster = Config.load(path, {}).cluster
        return cluster.timestamps, cluster.locks
    return (), ""


def places_told(replies: Sequence[f1_pb2.StatusReply]) -> Places:
    """Return where the services are, by what f1servers say."""
    for reply in replies:
        if reply.timestamps or reply.locks:
            return tuple(reply.timestamps), reply.locks
    return (), ""


def ask_services(places: Places) -> dict[str, Any] | None:
    """Ask all of them at once; None where there are none."""
    timestamps, locks = places
    if not timestamps and not locks:
        return None
    return asyncio.run(_ask(timestamps, locks))


async def _ask(timestamps: Sequence[str], locks: str) -> dict[str, Any]:
    channels = ChannelCache()
    request = orchestrator_pb2.ServiceStatusRequest()

    async def one(address: str, call: Awaitable[Any]) -> dict[str, Any]:
        try:
            reply = await call
        except Exception as failure:
            error: F1Error = error_from_exception(failure)
            return {"name": "", "zone": "", "address": address, "error": str(error)}
        row = {"name": reply.name, "zone": reply.zone, "address": address, "version": reply.version}
        if isinstance(reply, orchestrator_pb2.LocksStatus):
            return {**row, "leases": reply.leases, "waiting": reply.waiting, "error": ""}
        return {**row, "leads": reply.leads, "term": reply.term, "last": reply.last, "error": ""}

    try:
        stubs = [(a, orchestrator_pb2_grpc.TimestampsStub(channels.get(a))) for a in timestamps]
        asked = [one(address, stub.Status(request, timeout=_TIMEOUT_S)) for address, stub in stubs]
        if locks:
            stub = orchestrator_pb2_grpc.LocksStub(channels.get(locks))
            asked.append(one(locks, stub.Status(request, timeout=_TIMEOUT_S)))
        rows = list(await asyncio.gather(*asked))
    finally:
        await channels.close()
    return {"timestamps": rows[: len(timestamps)], "locks": rows[-1] if locks else None}


def services_table(services: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return titles and rows: what each process does, and why one does not answer."""
    rows = [_row("timestamps", item, _leadership(item)) for item in services["timestamps"]]
    if services["locks"] is not None:
        item = services["locks"]
        held = "" if item["error"] else f"{item['leases']} leases, {item['waiting']} requests wait"
        rows.append(_row("locks", item, held))
    return ("service", "zone", "address", "state", "error"), rows


def _row(kind: str, item: dict[str, Any], state: str) -> tuple[str, ...]:
    return item["name"] or f"{kind} ?", item["zone"], item["address"], state, item["error"]


def _leadership(item: dict[str, Any]) -> str:
    if item["error"]:
        return ""
    return f"gives out timestamps, term {item['term']}" if item["leads"] else "stands by"
