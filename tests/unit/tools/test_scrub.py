"""``f1 check-disk`` and what ``f1 status`` shows of damage."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.testing import bitrot
from spanstore.tools.scrub import check_disk
from spanstore.tools.status import summarise

app = typer.Typer()
app.command()(check_disk)


def test_a_sound_directory_and_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "data"
    bitrot.make(path, 3)
    sound = CliRunner().invoke(app, [str(path)])
    assert sound.exit_code == 0 and "span-a1: " in sound.output and "records" in sound.output
    leaf = next(page for page, kind in bitrot.kinds(path).items() if kind == "leaf")
    bitrot.flip(path, leaf, 14, 2)
    damaged = CliRunner().invoke(app, [str(path), "--json"])
    assert isinstance(damaged.exception, F1Error) and damaged.exception.code is Code.DATA_CORRUPTION
    assert f"page {leaf}" in damaged.output


def test_status_shows_what_is_wrong_with_a_server() -> None:
    reply = pb.StatusReply(
        name="span-a1",
        conditions=["damaged: group 1: a row"],
        damaged_groups=[1],
        sync_us=2_500,
        scrub=pb.ScrubStatus(passes=3, findings=["group 1: a row"]),
    )
    (row,) = summarise({"a:1": reply}).servers
    assert row.conditions == ("damaged: group 1: a row",) and row.damaged_groups == (1,)
    assert (row.sync_ms, row.scrub_passes, row.scrub_findings) == (2.5, 3, ("group 1: a row",))


def test_no_directory_at_all(tmp_path: Path) -> None:
    with pytest.raises(F1Error) as caught:
        check_disk(tmp_path / "nowhere", False)
    assert caught.value.code is Code.NOT_FOUND
