"""The orchestrator on a real cluster: its services as roles of it, the example bank, and processes that die."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from f1.orchestrator import Locks, Orchestrator, SpanStore, Timestamps
from tests.integration.database import Database, running
from tests.unit.orchestrator.test_bank import example

PATIENCE_S = 120.0


def services(database: Database) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(database.command("status", "--format", "json"))["orchestrator"]
    return found


def connect(database: Database) -> Orchestrator:
    """Use what `f1 status` says of where the services are."""
    found = services(database)
    return Orchestrator(
        SpanStore(database.hosts, timeout_s=PATIENCE_S),
        Timestamps(",".join(item["address"] for item in found["timestamps"]), timeout_s=PATIENCE_S),
        Locks(found["locks"]["address"], timeout_s=PATIENCE_S),
        timeout_s=PATIENCE_S,
    )


def process(database: Database, name: str) -> dict[str, Any]:
    listed = json.loads(database.command("cluster", "status", "--format", "json", "--dir", str(database.directory)))
    (found,) = [item for item in listed if item["name"] == name]
    return dict(found)


def leader(database: Database) -> dict[str, Any]:
    """Return who gives out timestamps, once anybody does."""
    while True:
        leading = [item for item in services(database)["timestamps"] if item.get("leads")]
        if leading:
            return dict(leading[0])
        time.sleep(0.2)


def test_the_bank_over_the_storage_tier_whoever_dies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, "--orchestrator") as database:
        where = ("--dir", str(database.directory))
        assert [process(database, name)["state"] for name in ("timestamps-1", "timestamps-2", "locks")] == 3 * [
            "running"
        ]
        for item in (*services(database)["timestamps"], services(database)["locks"]):
            assert "is SERVING" in database.command("health", item["address"])
        bank = connect(database)
        text, start = example(), example().index("bank = ")
        exec(text.replace(text[start : text.index("\n", start)], "bank = made"), {"made": bank})
        assert capsys.readouterr().out == "{'Alice': 12, 'Bob': 3} True\n"

        before, first = bank.start().start_ts, leader(database)
        database.command("cluster", "kill", first["name"], *where)
        with bank.start() as tx:
            assert tx.start_ts > before
            assert tx.get("accounts", "Alice", "balance") == 12
        second = leader(database)
        assert (second["name"] != first["name"], second["term"] > first["term"]) == (True, True)
        table = database.command("status", *where)
        assert "gives out timestamps" in table and first["address"] in table
        database.command("cluster", "start", first["name"], *where)

        # The supervisor brings back a lock service that died by itself; it has forgotten all leases.
        held = bank.start()
        old = process(database, "locks")
        os.kill(old["pid"], signal.SIGKILL)
        while (now := process(database, "locks"))["state"] != "running" or now["pid"] == old["pid"]:
            time.sleep(0.2)
        assert now["address"] == old["address"]
        with pytest.raises(Exception, match="TRANSACTION_EXPIRED"):
            held.get("accounts", "Alice", "balance")
        assert bank.run(lambda tx: tx.get("accounts", "Bob", "balance")) == 3
        database.command("check")  # fails on any finding: nothing of this is a stray
        bank.close()
