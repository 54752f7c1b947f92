"""``f1 schema plan``: the steps of a change, what is done in each, and the rows that stand against it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import typer
import uvloop

from f1 import aio
from f1.checking import Findings
from f1.commands.options import (
    DatabaseOption,
    DataLossOption,
    DirOption,
    FilesArgument,
    HostOption,
    hosts_of,
    read_sources,
)
from f1.commands.progress import keys_bar
from f1.commands.schema_jobs import duration
from f1.planning import ChangePlan, Step, TableWork, plan_change

__all__ = ["command", "document", "fetch_plan", "text"]

EXIT_REFUSED = 2
"""What is planned cannot be applied: rows stand against it, or would be lost without --allow-data-loss."""


class Format(Enum):
    """How a plan is printed."""

    text = "text"
    json = "json"


def command(
    files: FilesArgument,
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    allow_data_loss: DataLossOption = False,
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Read the rows that have something to say to the change.")
    ] = True,
    examples: Annotated[int, typer.Option(min=0, max=1000, help="Keys shown of each kind of violation.")] = 5,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
) -> None:
    """Show how the database would become what the files describe, and which rows stand against it.

    Nothing is changed. The exit code is 0 if the change can be applied or nothing is to be done, and 2 if rows stand
    against it, or if tables or columns with data would be dropped without --allow-data-loss.
    """
    sources = read_sources(files)
    plan = fetch_plan(hosts_of(host, directory), database, sources, data=data, examples=examples)
    if form is Format.json:
        typer.echo(json.dumps(document(plan, database, allow_data_loss=allow_data_loss), indent=2))
    else:
        typer.echo(text(plan, allow_data_loss=allow_data_loss))
    if _refused(plan, allow_data_loss):
        raise typer.Exit(EXIT_REFUSED)


def fetch_plan(
    hosts: str, database: str | None, sources: Mapping[str, str], *, data: bool, examples: int = 5
) -> ChangePlan:
    """Plan, and show how far the rows are read. Raises F1Error."""

    async def work() -> ChangePlan:
        async with await aio.connect(hosts, database, autocommit=True) as connection:
            with keys_bar() as bar:
                task = bar.add_task("read", total=None)
                return await plan_change(
                    connection.session,
                    sources,
                    data=data,
                    examples=examples,
                    on_progress=lambda done, total: bar.update(task, completed=done, total=total),
                )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def _refused(plan: ChangePlan, allow_data_loss: bool) -> bool:
    return bool(plan.violations) or (not allow_data_loss and any(count for _, count in plan.losses))


# ------------------------------------------------------------------ for people


def text(plan: ChangePlan, *, allow_data_loss: bool = False) -> str:
    """Return the plan for people."""
    if not plan.steps:
        return "\n".join(["The database is what the files describe.", *_warnings(plan)])
    lines = list(_steps(plan))
    lines += ["", _waits(plan)]
    lines += _losses(plan, allow_data_loss)
    lines += _warnings(plan)
    if plan.timestamp:
        moment = datetime.fromtimestamp(plan.timestamp / 1e6, UTC)
        as_of = f"as of {moment:%Y-%m-%d %H:%M:%S} UTC"
        if not plan.violations:
            lines.append(f"No row stands against it, {as_of}.")
        else:
            lines += ["", f"These rows stand against it, {as_of}; correct or delete them first:"]
            lines += [line for group in plan.violations for line in _violation(group)]
    elif any(step.work for step in plan.steps):
        lines.append("No rows were read: whether any stand against it is not known.")
    return "\n".join(lines)


def _steps(plan: ChangePlan) -> Iterator[str]:
    version = plan.schema_version
    for number, step in enumerate(plan.steps, 1):
        version += step.writes
        yield f"{number}. " + (f"version {version} of the schema" if step.writes else f"under version {version}")
        yield from (f"     {line}" for line in step.at_once)
        yield from (f"     {element}: {before} -> {after}" for element, before, after in step.moves)
        for work in step.work:
            yield f"   then, when all servers have it, {_amount(work, plan.rows_per_s)}:"
            yield from (f"     {line}" for line in _work(work))


def _amount(work: TableWork, rows_per_s: int) -> str:
    about = "" if work.exact else "about "
    rows = "no rows" if not work.rows else f"{about}{_counted(work.rows, 'row')} ({about and '~'}{_size(work.bytes)})"
    if not work.rows:
        return f"{rows} of {work.table}"
    return f"{rows} of {work.table}, some {duration(work.rows * work.passes / max(1, rows_per_s))}"


def _work(work: TableWork) -> Iterator[str]:
    for element, what in work.elements:
        unit = "entry" if element.startswith("index ") else "value"
        count = work.counts.get(element)
        yield f"{what} {element}" + ("" if count is None else f": {_counted(count, unit)}")


def _waits(plan: ChangePlan) -> str:
    versions = _counted(plan.versions, "version")
    if not plan.holders:
        return f"{versions} to write; no server has a lease on the schema now."
    if not plan.versions:
        return f"{versions} to write."
    longest = max(lease_ms for _, _, lease_ms in plan.holders)
    names = ", ".join(sorted(server for server, _, _ in plan.holders))
    have, answer = ("has", "it answers") if len(plan.holders) == 1 else ("have", "they answer")
    each, in_all = ("It", "") if plan.versions == 1 else ("Each", f", {plan.wait_at_most_ms / 1000:g} s for all")
    return (
        f"{versions} to write. {each} waits until {names} {have} it: some milliseconds if {answer}, else the "
        f"{longest / 1000:g} s of a lease{in_all}."
    )


def _losses(plan: ChangePlan, allow_data_loss: bool) -> Iterator[str]:
    hint = "" if allow_data_loss else "; --allow-data-loss says that this is meant"
    for element, count in plan.losses:
        unit = "value" if element.startswith("column ") else "row"
        if count or not plan.timestamp:
            lost = f"its {_counted(count, unit)}" if count else f"what {unit}s it has"
            yield f"The {element} is dropped with {lost}{hint}."


def _warnings(plan: ChangePlan) -> Iterator[str]:
    return (f"Warning: {warning}." for warning in plan.warnings)


def _violation(group: Findings) -> Iterator[str]:
    place = ".".join(name for name in (group.table, group.element) if name)
    yield f"{group.kind} in {place}: {_counted(group.count, 'row')}"
    yield from (f"  {key}: {message}" if key else f"  {message}" for key, message in group.examples)
    if group.count > len(group.examples) > 0 and group.kind != "duplicate":
        yield f"  and {group.count - len(group.examples):,} more"


def _counted(count: int, unit: str) -> str:
    plural = unit[:-1] + "ies" if unit.endswith("y") else unit + "s"
    return f"{count:,} {unit if count == 1 else plural}"


def _size(size: float) -> str:
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:,.0f} bytes" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"


# ------------------------------------------------------------------ for programs


def document(plan: ChangePlan, database: str | None, *, allow_data_loss: bool = False) -> dict[str, Any]:
    """Return the plan for programs; times are milliseconds, ``timestamp`` microseconds since 1970."""
    return {
        "database": database or "default",
        "schema_version": plan.schema_version,
        "can_be_applied": not _refused(plan, allow_data_loss),
        "steps": [_step_document(plan, step) for step in plan.steps],
        "versions": plan.versions,
        "wait_at_most_ms": plan.wait_at_most_ms,
        "servers": [
            {"server": server, "version": version, "lease_ms": lease_ms} for server, version, lease_ms in plan.holders
        ],
        "losses": [{"element": element, "count": count if plan.timestamp else None} for element, count in plan.losses],
        "warnings": list(plan.warnings),
        "timestamp": plan.timestamp or None,
        "violations": [
            {
                "kind": group.kind,
                "table": group.table,
                "element": group.element,
                "count": group.count,
                "examples": [{"key": key, "message": message} for key, message in group.examples],
            }
            for group in plan.violations
        ],
    }


def _step_document(plan: ChangePlan, step: Step) -> dict[str, Any]:
    return {
        "moves": [{"element": element, "before": before, "after": after} for element, before, after in step.moves],
        "at_once": list(step.at_once),
        "work": [
            {
                "table": work.table,
                "rows": work.rows,
                "bytes": work.bytes,
                "exact": work.exact,
                "estimated_ms": round(1000 * work.rows * work.passes / max(1, plan.rows_per_s)),
                "elements": [
                    {"element": element, "work": what, "count": work.counts.get(element)}
                    for element, what in work.elements
                ],
            }
            for work in step.work
        ],
    }
