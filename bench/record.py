"""Run a benchmark and write what it measured into its section of `README.md`: `python bench/record.py kv [OPTION...]`.

Options go to `f1 bench NAME`. The section begins with the comment `<!-- NAME -->` and ends with the next heading.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parent / "README.md"

# Heading of a column -> what is in it.
COLUMNS: Mapping[str, str] = {
    "work": "{work}",
    "clients": "{clients}",
    "a second": "{ours:,.0f}",
    "central ms": "{central_ms:,.0f}",
    "moved KiB": "{moved_kib:,.0f}",
    "rows at the f1server": "{rows_in:,}",
    "p50 ms": "{p50_ms:.1f}",
    "p99 ms": "{p99_ms:.1f}",
    "cpu us": "{cpu_us:.0f}",
    "load cpu": "{load_cpu:.2f}",
}
# Where several units, peers and goals stand side by side.
MIXED_COLUMNS: Mapping[str, str] = {
    "work": "{work}",
    "clients": "{clients}",
    "unit": "{unit}",
    "ours": "{ours:,.10g}",
    "against": "{peer_name}",
    "it": "{peer:,.10g}",
    "ratio": "{ratio:.2f} ({ratio_range[0]:.2f} to {ratio_range[1]:.2f})",
    "goal": "{goal}",
    "met": "{met}",
    "p99 ms": "{p99_ms:,.1f}",
    "cpu us": "{cpu_us:,.1f}",
    "load us": "{load_cpu_us:,.1f}",
    "its p99 ms": "{peer_p99_ms:,.1f}",
    "its cpu us": "{peer_cpu_us:,.1f}",
    "its load us": "{peer_load_cpu_us:,.1f}",
}
_FIELD = re.compile(r"\{(\w+)")
PEER_COLUMNS: Mapping[str, str] = {
    "a second": "{peer:,.0f}",
    "p50 ms": "{peer_p50_ms:.1f}",
    "p99 ms": "{peer_p99_ms:.1f}",
    "ratio": "{ratio:.2f}",
}


def table(report: Mapping[str, Any], revision: str) -> str:
    """Return a report as Markdown."""
    rows = report["rows"]
    if "goal" in rows[0]:
        return _markdown(report, revision, list(MIXED_COLUMNS.items()))
    peer = rows[0]["peer_name"]
    columns = [(heading, form) for heading, form in COLUMNS.items() if _has(rows[0], form)]
    if peer:
        columns += [
            (f"{peer} {heading}" if heading != "ratio" else heading, form)
            for heading, form in PEER_COLUMNS.items()
            if _has(rows[0], form)
        ]
    if rows[0].get("unit") == "ms":
        columns = [(heading.replace("a second", "ms"), form) for heading, form in columns]
    return _markdown(report, revision, columns)


def _markdown(report: Mapping[str, Any], revision: str, columns: Sequence[tuple[str, str]]) -> str:
    lines = [
        f"Revision {revision} on {report['machine']}:",
        "",
        "| " + " | ".join(heading for heading, _ in columns) + " |",
        "|---" + "|---:" * (len(columns) - 1) + "|",
    ]
    lines += ["| " + " | ".join(_cell(row, form) for _, form in columns) + " |" for row in report["rows"]]
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], form: str) -> str:
    """Return a value as text; what is None is empty, and whether something is so is yes or no."""
    value = row[_FIELD.findall(form)[0]]
    if value is None:
        return ""
    return ("yes" if value else "no") if isinstance(value, bool) else form.format(**row)


def _has(row: Mapping[str, Any], form: str) -> bool:
    return row.get(_FIELD.findall(form)[0]) is not None


def replace(text: str, name: str, section: str) -> str:
    """Return the document with the section of a benchmark replaced. Raises ValueError if it has none."""
    marker = f"<!-- {name} -->\n"
    before, found, after = text.partition(marker)
    if not found:
        raise ValueError(f"the document has no section {marker.strip()}")
    heading = re.search(r"^#", after, re.MULTILINE)
    rest = after[heading.start() :] if heading else ""
    return f"{before}{marker}\n{section}\n" + (f"\n{rest}" if rest else "")


def main(arguments: Sequence[str]) -> int:
    name, *options = arguments
    script = README.with_name(f"{name}.py")
    command = [str(script)] if script.exists() else ["-m", "f1", "bench", name]
    done = subprocess.run([sys.executable, *command, "--format", "json", *options], stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    describe = ["git", "describe", "--always", "--dirty"]
    revision = subprocess.run(describe, cwd=README.parent, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    section = table(report, revision)
    README.write_text(replace(README.read_text(), name, section))
    print(section)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
