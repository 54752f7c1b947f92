"""The committed protobuf code is what `make proto` generates from `proto/` today."""

from pathlib import Path

import pytest

from scripts.proto import PACKAGE, ROOT, generate, generated_files


def drift(root: Path, scratch: Path) -> list[str]:
    """The files of `root/f1common/pb` that differ from what `root/proto` generates, each with what is wrong."""
    (scratch / PACKAGE).mkdir(parents=True)
    fresh = generate(root, scratch)
    committed = generated_files(root)
    wrong = [f"{path}: missing" for path in fresh if path not in committed]
    wrong += [f"{path}: has no source in proto/" for path in committed if path not in fresh]
    wrong += [
        f"{path}: differs"
        for path in fresh
        if path in committed and (root / path).read_bytes() != (scratch / path).read_bytes()
    ]
    return sorted(wrong)


def test_committed_code_is_what_the_sources_generate(tmp_path: Path) -> None:
    assert drift(ROOT, tmp_path) == [], "run `make proto` and commit the result"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A little project whose generated code is up to date."""
    (tmp_path / "proto").mkdir()
    (tmp_path / PACKAGE).mkdir(parents=True)
    (tmp_path / "proto/a.proto").write_text('syntax = "proto3"; package a; message A { int64 x = 1; }')
    generate(tmp_path, tmp_path)
    return tmp_path


def test_up_to_date_project_has_no_drift(project: Path, tmp_path: Path) -> None:
    assert drift(project, tmp_path / "scratch") == []


def test_changed_source_is_noticed(project: Path, tmp_path: Path) -> None:
    (project / "proto/a.proto").write_text('syntax = "proto3"; package a; message A { int64 y = 1; }')
    assert f"{PACKAGE}/a_pb2.py: differs" in drift(project, tmp_path / "scratch")


def test_new_source_without_generated_code_is_noticed(project: Path, tmp_path: Path) -> None:
    (project / "proto/b.proto").write_text('syntax = "proto3"; import "f1common/pb/a.proto"; message B { a.A a = 1; }')
    assert f"{PACKAGE}/b_pb2.py: missing" in drift(project, tmp_path / "scratch")


def test_generated_code_whose_source_is_gone_is_noticed(project: Path, tmp_path: Path) -> None:
    (project / "proto/a.proto").unlink()
    assert f"{PACKAGE}/a_pb2_grpc.py: has no source in proto/" in drift(project, tmp_path / "scratch")


def test_refused_source_is_an_error(project: Path, tmp_path: Path) -> None:
    (project / "proto/a.proto").write_text("syntax = 'proto3'; message A { nonsense }")
    with pytest.raises(RuntimeError, match="refused"):
        drift(project, tmp_path / "scratch")
