"""The shell and the commands, as people use them (design section 7, issue 3)."""

import json
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

import f1
from f1.cli import GROUP, build, run
from f1.commands.options import read_sources
from f1.metadata import Metadata
from f1.shell.editing import SqlCompleter, SqlLexer
from f1.shell.render import Format
from f1.shell.repl import Repl, WithoutPasswords
from f1.shell.runner import pointer, with_place
from f1.statements import Piece
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from tests.unit.client_f1.fake_server import FakeCluster, fake_cluster, once, schema_bytes


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(1) as running:
        running.put({1: 100, 2: 200})
        yield running


Capture = pytest.CaptureFixture[str]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(cluster: FakeCluster, capsys: Capture) -> Command:
    def call(*arguments: str) -> tuple[int, str, str]:
        full = [*arguments, "--host", cluster.hosts]
        code = run(build(entry_points(group=GROUP), full), full)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def typed(cluster: FakeCluster, *lines: str) -> tuple[str, list[str]]:
    """Type lines into the shell; return what it printed, and the prompts."""
    out: list[str] = []
    prompts: list[str] = []
    rest = iter(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        line = next(rest, None)
        if line is None:
            raise EOFError
        if line == "^C":
            raise KeyboardInterrupt
        return line

    def connect(database: str | None) -> f1.Connection:
        return f1.connect(cluster.hosts, database, autocommit=True)

    Repl(connect, None, Format.table, write=out.append).loop(read)
    return "".join(out), prompts


def test_json_of_a_command(command: Command) -> None:
    code, out, err = command("sql", "--format", "json", "-c", "SELECT Id, Balance FROM Account ORDER BY Id")
    assert (code, err) == (0, "")
    assert json.loads(out) == [{"Id": 1, "Balance": 100}, {"Id": 2, "Balance": 200}]


def test_several_statements_and_a_transaction(cluster: FakeCluster, command: Command) -> None:
    code, out, _ = command(
        "sql",
        "-c",
        "BEGIN; INSERT INTO Account (Id, Balance) VALUES (?, ?); COMMIT".replace("?, ?", "?"),
    )
    assert (code, out) == (0, "BEGIN\nINSERT 0\nCOMMIT\n")
    code, out, _ = command("sql", "--format", "csv", "-c", "SELECT 1 AS a; SELECT 2 AS b;")
    assert out == "a\n1\nb\n2\n"


def test_several_commands_and_files_run_one_after_the_other(command: Command, tmp_path: Path) -> None:
    code, out, err = command("sql", "--format", "csv", "-c", "SELECT 1 AS a", "-c", "SELECT 2 AS b")
    assert (code, out, err) == (0, "a\n1\nb\n2\n", "")
    one, two = tmp_path / "one.sql", tmp_path / "two.sql"
    one.write_text("SELECT 1 AS a;")
    two.write_text("SELECT 2 AS b;\n BOGUS")
    code, out, err = command("sql", "--format", "csv", "-f", str(one), "-f", str(two))
    assert (code, out) == (1, "a\n1\nb\n2\n")
    assert f"({two}:2:2)" in err


def test_an_error_is_one_line_and_the_exit_code_one(cluster: FakeCluster, command: Command) -> None:
    cluster.set_fault(once(F1Error(Code.NOT_FOUND, "there is no\ntable Nope"), "execute"))
    code, out, err = command("sql", "-c", "SELECT 1")
    assert (code, out, err) == (1, "", "NOT_FOUND: there is no table Nope\n")


def test_errors_in_a_file_name_file_line_and_column(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "some.sql"
    file.write_text("SELECT 1 AS one;\n\n  BOGUS 2;\nSELECT 3 AS three;\n")
    code, out, err = command("sql", "--format", "csv", "-f", str(file))
    assert (code, out) == (1, "one\n1\n")
    assert err == f"INVALID_ARGUMENT: syntax error at BOGUS ({file}:3:3)\n"


def test_a_transaction_left_open_is_an_error(cluster: FakeCluster, command: Command) -> None:
    code, _, err = command("sql", "-c", "BEGIN; SELECT 1 AS one")
    assert code == 1
    assert "never committed" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sql", "-c", "SELECT 1", "-f", "x"), "use one of them"),
        (("sql", "-f", "no/such/file"), "cannot read no/such/file"),
        (("sql", "--format", "xml", "-c", "SELECT 1"), "INVALID_ARGUMENT"),
        (("load", "Account", "nope.csv"), "there is no file nope.csv"),
        (("schema", "plan", "a.txt"), "a schema is described by .sql and .proto files"),
        (("changes", "tail", "Account", "--key", "x"), "Account.Id is INT64, and 'x' is none"),
    ],
)
def test_wrong_use(command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_shell_runs_statements_and_shows_errors_at_their_place(cluster: FakeCluster) -> None:
    out, _ = typed(cluster, "SELECT Id FROM Account ORDER BY Id;", "WRONG;", "SELECT 1 +\nnope;", "SELECT 5 AS five;")
    assert "  1\n  2\n(2 rows)" in out
    assert "INVALID_ARGUMENT: syntax error at WRONG\n  WRONG\n  ^\n" in out
    assert "  1 | SELECT 1 +\n             ^\n" in out
    assert " five\n" in out


def test_shell_transactions_show_in_the_prompt(cluster: FakeCluster) -> None:
    out, prompts = typed(
        cluster, "BEGIN;", "SELECT 1 AS one;", "ROLLBACK;", "BEGIN SNAPSHOT;", "SELECT count(*) AS n FROM Account;"
    )
    assert prompts == ["default> ", "default*> ", "default*> ", "default> ", "default*> ", "default*> "]
    assert "The open transaction is rolled back." in out


def test_shell_commands(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text("SELECT 11 AS eleven; SELECT 12 AS twelve")
    out, prompts = typed(
        cluster,
        "\\d",
        "\\d account",
        "\\di",
        "\\?",
        f"\\i {file}",
        "\\timing on",
        "\\x",
        "SELECT 3 AS n;",
        "\\q",
        "never",
    )
    assert " Account | Id          |" in out
    assert "Primary key: Id" in out
    assert "Index ByBalance (Balance), global" in out
    assert " ByBalance | Account | Balance | no     | global" in out
    assert "Ctrl-C cancels" in out
    assert " twelve\n" in out
    assert "-[ row 1 ]---\nn | 3\n" in out
    assert "Time: " in out
    assert len(prompts) == 9


def test_shell_survives_wrong_commands_and_interrupts(cluster: FakeCluster) -> None:
    out, prompts = typed(cluster, "\\nope", "^C", "\\d Nope", "\\c", "\\i no/such", "\\x maybe", "SELECT 1 AS one;")
    for message in (
        "there is no command \\nope",
        "there is no table Nope",
        "\\c takes the name of a database",
        "cannot read no/such",
        "say on or off",
        " one\n",
    ):
        assert message in out
    assert len(prompts) == 8


def metadata() -> Metadata:
    return Metadata(pb.ShowSchemaReply(version=3, schema=schema_bytes()))


def completions(text: str) -> list[str]:
    completer = SqlCompleter(metadata)
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent(completion_requested=True))]


def test_completion() -> None:
    assert completions("sel") == ["select"]
    assert completions("SELECT Bal") == ["Balance"]
    assert completions("SELECT a.") == ["Id", "Balance", "Note"]
    assert completions("SELECT * FROM acc") == ["Account"]
    assert completions("\\d") == ["\\d", "\\dt", "\\di"]
    assert completions("SELECT 1 ") == []


def test_colours_leave_the_text_as_it_is() -> None:
    text = "SELECT 'a\nb' -- c\nFROM 1;"
    lines = SqlLexer().lex_document(Document(text))
    assert ["".join(part[1] for part in lines(i)) for i in range(3)] == text.split("\n")
    assert lines(0)[0] == ("ansiblue bold", "SELECT")
    assert lines(99) == []


def test_places() -> None:
    piece = Piece("SELECT\n\tx FROM t", 10, 5)
    error = F1Error(Code.NOT_FOUND, "no column x (line 2, column 2)", details={"line": "2", "column": "2"})
    assert pointer(error, piece) == "  2 | \tx FROM t\n      \t^\n"
    assert with_place(error, piece, "f.sql").message == "no column x (f.sql:11:2)"
    first = F1Error(Code.NOT_FOUND, "oh", details={"line": "1", "column": "3"})
    assert with_place(first, piece, "").message == "oh (line 10, column 7)"
    for details in ({}, {"line": "9", "column": "1"}, {"line": "x", "column": "1"}):
        nowhere = F1Error(Code.NOT_FOUND, "oh", details=details)
        assert pointer(nowhere, piece) == ""
        assert with_place(nowhere, piece, "") is nowhere
        assert with_place(nowhere, piece, "f.sql").message == "oh (f.sql:10:5)"


def test_proto_files_have_the_names_under_which_they_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "ads").mkdir()
    for name in ("ads/a.proto", "b.proto", "s.sql"):
        (tmp_path / name).write_text(name)
    paths = [tmp_path / "ads" / "a.proto", tmp_path / "b.proto", tmp_path / "s.sql"]
    assert read_sources(paths) == {"ads/a.proto": "ads/a.proto", "b.proto": "b.proto", str(paths[2]): "s.sql"}
    assert list(read_sources(paths[:1])) == ["a.proto"]


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "s.sql"
    path.write_bytes(b"\xef\xbb\xbfCREATE TABLE T (A INT64, PRIMARY KEY (A));")
    assert list(read_sources([path]).values()) == ["CREATE TABLE T (A INT64, PRIMARY KEY (A));"]


def test_public_names_can_be_imported() -> None:
    for name in dir(f1):
        value: Any = getattr(f1, name)
        assert value is not None
    with pytest.raises(AttributeError):
        f1.nothing  # noqa: B018


def test_inputs_with_passwords_are_not_kept(tmp_path: Path) -> None:
    history = WithoutPasswords(str(tmp_path / "history"))
    for text in ("SELECT 1;", "ALTER ROLE a PASSWORD 'secret';", "create role b\nPassword 'secret'", "SHOW ROLES;"):
        history.append_string(text)
    kept = (tmp_path / "history").read_text()
    assert "SELECT 1" in kept and "SHOW ROLES" in kept and "secret" not in kept


@pytest.mark.parametrize(
    ("text", "in_transaction", "said"),
    [
        ("UPDATE T SET V = 1 WHERE K = 1", False, "Cancelled; it may have been committed just before."),
        ("UPDATE T SET V = 1 WHERE K = 1", True, "Cancelled."),
        ("SELECT 1", False, "Cancelled."),
    ],
)
def test_who_cancels_a_statement_is_told_what_is_known(text: str, in_transaction: bool, said: str) -> None:
    connection = MagicMock(in_transaction=in_transaction)
    connection.cursor().__enter__().execute.side_effect = KeyboardInterrupt
    told: list[str] = []
    Repl(lambda _: connection, None, Format.table, write=told.append).run(f"{text};")
    assert told == [said + "\n"]
