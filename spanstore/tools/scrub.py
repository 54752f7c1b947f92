"""``f1 scrub``: have a spanserver read all of its data now. ``f1 check-disk``: check a data directory at rest."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import SpanClient
from spanstore.scrub.offline import Report, check_directory
from spanstore.tools.target import DirOption, HostOption, resolve

_POLL_S = 0.2
_MIB = 1 << 20


def command(
    server: Annotated[str, typer.Argument(metavar="[SERVER]", help="Name of a spanserver; without it: all.")] = "",
    host: HostOption = None,
    directory: DirOption = None,
    rate_mib: Annotated[
        int, typer.Option("--rate-mib", min=0, help="MiB to read a second. [default: storage.scrub_bytes_per_s]")
    ] = 0,
) -> None:
    """Read everything on the disks of the storage servers, verify it, and print what is damaged.

    The exit code is 1 if anything is. Replicas with damage are taken out of service by their servers.
    """

    async def work(client: SpanClient) -> dict[str, list[str]]:
        names = [server] if server else sorted(await _names(client))
        found = await asyncio.gather(*(_scrub(client, name, rate_mib * _MIB) for name in names))
        return dict(zip(names, found, strict=True))

    findings = resolve(host, directory).run(work)
    for name, texts in findings.items():
        for text in texts:
            typer.echo(f"{name}: {text}")
        if not texts:
            typer.echo(f"{name}: no damage found")
    if any(findings.values()):
        raise F1Error(Code.DATA_CORRUPTION, "damage was found; the replicas concerned are out of service")


async def _names(client: SpanClient) -> list[str]:
    return [answer.name for answer in (await client.status()).values() if isinstance(answer, pb.StatusReply)]


async def _scrub(client: SpanClient, server: str, bytes_per_s: int) -> list[str]:
    """Have one server make a pass, wait for its end, and return what was found, also by earlier ones."""
    passes = await client.scrub(server, bytes_per_s)
    while True:
        answers = (await client.status()).values()
        answer = next((a for a in answers if isinstance(a, pb.StatusReply) and a.name == server), None)
        if answer is None:
            raise F1Error(Code.UNAVAILABLE, f"{server} ended while it was scrubbed; its log says why")
        if answer.scrub.passes >= passes or (answer.scrub.findings and not answer.scrub.running):
            return list(answer.scrub.findings)
        await asyncio.sleep(_POLL_S)


def check_disk(
    directory: Annotated[Path, typer.Argument(help="Data directory of a spanserver that does not run.")],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check every page and record of a data directory; the exit code is 1 if anything is damaged."""
    report = check_directory(directory)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        typer.echo(_text(report))
    if report.findings:
        raise F1Error(
            Code.DATA_CORRUPTION,
            f"{directory} is damaged; discard it, or let the replica be rebuilt from the others",
        )


def _text(report: Report) -> str:
    lines = [str(finding) for finding in report.findings]
    lines.append(f"{report.server or 'no server'}: {report.records} records in {report.pages} pages")
    return "\n".join(lines)
