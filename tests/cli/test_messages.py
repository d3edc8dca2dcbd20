"""Messages name options as Python or the shell does; quoted texts stay unchanged."""

from __future__ import annotations

import copy
import io
import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import fastresp
from fastresp.cli.app import app
from fastresp.cli.ending import in_options
from fastresp.outcome.messages import Hint, Message, above_zero
from fastresp.server.local_server import LocalServer


def run(*arguments: object, **environment: str) -> Result:
    """Run a command of the command line in this process."""
    return CliRunner().invoke(app, [str(each) for each in arguments], env=environment)


@pytest.mark.parametrize(
    ("hint", "python", "shell"),
    [
        (Hint("nulls", "skip"), "nulls='skip'", "--nulls skip"),
        (Hint("rate_limit"), "rate_limit", "--rate-limit"),
        (Hint("encoding", ...), "encoding=", "--encoding"),
        (Hint("skip_truncated", True), "skip_truncated=True", "--skip-truncated"),
        (Hint("delimiter", ";"), "delimiter=';'", "--delimiter ';'"),
        (Hint("header", ...), "header=", "--no-header"),
        (Hint("default", ...), "default=", "default="),
        (Hint("columns", ..., "in"), "in columns=", "in --columns"),
        (Hint("binary", ..., "in"), "in binary=", "after --binary"),
    ],
)
def test_an_option_in_python_and_in_the_shell(hint: Hint, python: str, shell: str) -> None:
    message = Message("give ", Message(hint, ","), " or nulls='skip'")
    assert message == f"give {python}, or nulls='skip'"
    assert in_options(message) == f"give {shell}, or nulls='skip'"
    assert message.hints == [hint]


def test_none_is_for_python_only() -> None:
    message = above_zero("timeout", "seconds", -1)
    assert message == "timeout must be a number of seconds above 0, or None, not -1"
    assert in_options(message) == "--timeout must be a number of seconds above 0, not -1"


def test_a_message_survives_pickle_and_copy() -> None:
    message = Message("give ", Hint("nulls", "skip"))
    for other in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
        assert other == message
        assert in_options(other) == "give --nulls skip"


def test_an_error_has_the_hints_of_its_message() -> None:
    with pytest.raises(fastresp.EncodeError) as caught:
        fastresp.dump([("SET", "k", "v"), ("SET", "k", None)], None, io.BytesIO())
    assert caught.value.hints == [Hint("nulls", "skip"), Hint("nulls", "empty")]
    assert str(caught.value).endswith(", nulls='empty' sends an empty string")
    assert not fastresp.SourceError("it has nulls='skip'").hints


@pytest.mark.parametrize("as_json", [False, True])
def test_errors_of_the_server_stay_unchanged(
    server: LocalServer, tmp_path: Path, as_json: bool
) -> None:
    path = tmp_path / "x.resp"
    fastresp.dump([("BLPOP", "list", "soon")], None, path)
    done = run("send", path, "--yes", *["--json"] * as_json, REDIS_URL=server.url)
    assert done.exit_code == 1
    assert "ERR timeout is not a float or out of range" in done.output
    assert "--timeout" not in done.output


def test_values_of_the_user_stay_unchanged(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,"timeout is"\n1,2,3\n')
    done = run("load", path, "SET {a} {timeout is}", REDIS_URL=server.url)
    assert done.exit_code == 1
    assert "'1,2,3'" in done.output
    path.write_text('{"a": {"columns= names": 1}}\n{"a": 1}\n')
    done = run("load", path, "SET {a} 1", "--format", "jsonl", REDIS_URL=server.url)
    assert "--columns names" not in done.output


@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
def test_options_in_a_report_are_the_shells(
    server: LocalServer, tmp_path: Path, transport: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1, "b": null}\n{"a": 2, "b": "x"}\n')
    done = run(
        "load", path, "INCRBY {a} {b}", "--nulls", "skip", "--transport", transport,
        REDIS_URL=server.url,
    )  # fmt: skip
    assert done.exit_code == 1
    assert "1 command skipped: a null, or nothing to send" in done.output
    assert ("; --transport socket can" in done.output) == (transport == "redis-cli")


def test_rejects_loaded_as_data_get_advice(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text(json.dumps({"row": 0, "arguments": ["LPUSH", "k", "v"]}) + "\n")
    done = run("load", path, "{*arguments}", REDIS_URL=server.url)
    assert done.exit_code == 64
    assert "for a rejects file, use --from-rejects and no template" in done.output


def test_mistakes_have_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("users.csv").write_text("id\n1\n")
    Path("users.csv.xz").write_bytes(b"\xfd7zXZ\0")
    wide = f"INSERT {'x, ' * 300}"
    calls = [
        (["load", "users.csv.xz", "SET {id} 1"], "xz can't be read compressed; decompress"),
        (["load", "user.csv", "SET {id} 1"], "No such file or directory (did you mean users.csv"),
        (["load", "users.csv", "--retry"], "use --from-rejects or --retry-in-doubt"),
        (
            ["load", "users.csv", "SET {id} 1", "--checkpoint", "c", "--retry-in-doubt", "always"],
            "--checkpoint can't be used with --retry-in-doubt; resume the load instead",
        ),
        (["unload", "a", "b.csv", "c.csv"], "argument (c.csv); -o FILE writes to a file"),
        (["check", "a", "https://x/y?sig=geheim"], "argument (https://x/y?sig=***)"),
        (["dump", "users.csv", "SET {id} 1", "-o", "o.rdb"], "add --format rdb, or name it o.resp"),
        (["load", wide, "SET {id} 1"], "... (907 characters): File name too long"),
    ]
    for call, words in calls:
        done = run(*call)
        assert done.exit_code and words in done.stderr, done.stderr
    assert not Path("o.rdb").exists()
    with pytest.raises(ValueError, match=r"o\.rdb would hold RESP; add format='rdb'"):
        fastresp.dump([("SET", 1, 1)], None, "o.rdb")


def test_only_a_command_passed_as_data_is_called_a_command() -> None:
    for data, notes in (("SET a b", 1), ("no.csv", 0), (Path("no.csv"), 0), ("two words.csv", 0)):
        with pytest.raises(FileNotFoundError) as caught:
            fastresp.mass_insert(data)
        assert len(getattr(caught.value, "__notes__", [])) == notes


def test_closed_file_objects(tmp_path: Path) -> None:
    with open(tmp_path / "x", "wb") as file:
        pass
    for call in (
        lambda: fastresp.mass_insert(file, "SET {0} 1"),
        lambda: fastresp.read(file, format="resp"),
        lambda: fastresp.dump(fastresp.read(file, format="csv"), "SET {a} 1", io.BytesIO()),
    ):
        with pytest.raises(fastresp.SourceError, match=r"x is closed; open it again"):
            call()
