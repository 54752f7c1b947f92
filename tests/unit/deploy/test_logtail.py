"""The end of a log, and what is written after it."""

from pathlib import Path

from f1deploy.logtail import follow, last_lines, show


def test_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number} {'x' * 50}\n" for number in range(5000)))
    lines, end = last_lines(log, 3)
    assert [line.split(" x")[0] for line in lines] == ["line 4997", "line 4998", "line 4999"]
    assert end == log.stat().st_size


def test_a_log_that_is_shorter_than_asked_for_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("one\ntwo\n")
    assert last_lines(tmp_path / "x.log", 10)[0] == ["one", "two"]
    assert last_lines(tmp_path / "x.log", 0)[0] == []
    assert last_lines(tmp_path / "nothing.log", 10) == ([], 0)


def test_following_shows_complete_new_lines_under_their_names(tmp_path: Path) -> None:
    files = {"a": tmp_path / "a.log", "b": tmp_path / "b.log"}
    files["a"].write_text("old\n")
    seen: list[tuple[str, str]] = []

    def emit(name: str, line: str) -> None:
        seen.append((name, line))

    ends = show(files, 10, emit)
    steps = iter([b"fir", b"st\nsec", b"ond\n"])

    def write_more() -> bool:
        piece = next(steps, None)
        if piece is None:
            return False
        with files["b"].open("ab") as log:
            log.write(piece)
        return True

    follow(files, ends, emit, write_more)
    assert seen == [("a", "old"), ("b", "first"), ("b", "second")]


def test_a_log_that_was_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("a long line of the old log\n")
    seen: list[str] = []
    ends = show({"a": log}, 0, lambda _, line: seen.append(line))
    log.write_text("new\n")
    rounds = iter([True, False])
    follow({"a": log}, ends, lambda _, line: seen.append(line), lambda: next(rounds))
    assert seen == ["new"]
