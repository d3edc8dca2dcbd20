"""Rejects have every byte of a failed command, except for passwords, which are never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from loads import Insert

import fastresp
from fastresp import CommandError, EncodeError, SourceError
from fastresp.cli.app import app
from fastresp.outcome.passwords import hidden_arguments, redacted
from fastresp.resp.shown import shown_command
from fastresp.server.local_server import LocalServer
from fastresp.transports.error_policy import reject_line

ODD = [
    b"\xff\x00\r\n\xc3\xa9",
    b"\xed\xa0\x80",
    b"",
    "é\u2028\n".encode(),
    b"{}",
    b'{"base64": ""}',
]
SECRET = "hunter2secret"


def run(*arguments: object, **environment: str) -> Result:
    """Run a fastresp command in this process."""
    return CliRunner().invoke(app, [str(each) for each in arguments], env=environment)


@given(st.lists(st.lists(st.binary(max_size=20), min_size=1), min_size=1, max_size=5))
def test_every_byte_is_read_back(tmp_path_factory: Any, commands: list[list[bytes]]) -> None:
    path = tmp_path_factory.mktemp("rejects") / "rejects.jsonl"
    errors = [CommandError("ERR x", index=0, arguments=(b"SET", *words)) for words in commands]
    path.write_text("".join(map(reject_line, errors)), "ascii")
    again = list(fastresp.read_rejects(path))
    assert [[w if isinstance(w, bytes) else w.encode() for w in each] for each in again] == [
        [b"SET", *words] for words in commands
    ]


def test_rejects_in_python(
    insert: Insert, client: redis.Redis, server: LocalServer, tmp_path: Path
) -> None:
    client.set("list", "in the way")
    path, more = tmp_path / "rejects.jsonl", tmp_path / "more.jsonl"
    data = [("RPUSH", "list", word) for word in ODD] + [("SET", "other", 1)]
    report = insert(data, server=server.url, rejects=path, on_error="collect")
    assert report.failed == len(ODD)
    # The cause was not fixed: the same commands are rejected again.
    insert(fastresp.read_rejects(path), server=server.url, rejects=more, on_error="collect")
    assert list(fastresp.read_rejects(more)) == list(fastresp.read_rejects(path))
    client.delete("list")
    report = insert(fastresp.read_rejects(more), server=server.url, connections=1)
    assert report.replies == len(ODD)
    assert client.lrange("list", 0, -1) == ODD
    assert list(fastresp.read_rejects(path, limit=2)) == list(fastresp.read_rejects(path))[:2]


def test_command_line(client: redis.Redis, server: LocalServer, tmp_path: Path) -> None:
    client.set("list", "in the way")
    source, path = tmp_path / "x.resp", tmp_path / "rejects.jsonl"
    fastresp.dump([("RPUSH", "list", word) for word in ODD], None, source)
    assert run("send", source, "--rejects", path, REDIS_URL=server.url).exit_code == 1
    client.delete("list")
    done = run("send", source, "--rejects", path, REDIS_URL=server.url)
    assert (done.exit_code, client.llen("list")) == (6, 0)
    assert "--from-rejects" in done.stderr and "rejects-20" in done.stderr
    done = run("load", path, "--from-rejects", "--dry-run", REDIS_URL=server.url)
    assert (done.exit_code, f"commands: {len(ODD)}" in done.stderr) == (0, True)
    for options in ((), ("--connections", "2")):
        done = run("load", path, "--from-rejects", *options, REDIS_URL=server.url)
        assert (done.exit_code, "0 errors" in done.stderr) == (0, True)
    assert client.lrange("list", 0, len(ODD) - 1) == ODD
    assert client.llen("list") == 2 * len(ODD)
    done = run("load", path, "--from-rejects", "--json", "--limit", 1, REDIS_URL=server.url)
    assert json.loads(done.stdout)["commands"] == 1


def test_command_line_asks_before_deletion(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text('{"arguments": ["DEL", "a"]}\n')
    done = run("load", path, "--from-rejects", REDIS_URL=server.url)
    assert (done.exit_code, "DEL may delete" in done.stderr) == (64, True)
    assert run("load", path, "--from-rejects", "--yes", REDIS_URL=server.url).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["-", "--from-rejects"],
        ["{path}", "SET a b", "--from-rejects"],
        ["{path}", "--from-rejects", "--format", "jsonl"],
        ["{path}.missing", "--from-rejects"],
    ],
)
def test_wrong_use(server: LocalServer, tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text('{"arguments": ["SET", "a", "b"]}\n')
    done = run("load", *(each.format(path=path) for each in arguments), REDIS_URL=server.url)
    assert (done.exit_code, done.stdout) == (64, "")
    with pytest.raises(TypeError, match="leave out the template"):
        fastresp.mass_insert(fastresp.read_rejects(path), "SET a b", server=server.url)
    with pytest.raises(ValueError, match="limit must be 0 commands or more"):
        fastresp.read_rejects(path, limit=-1)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "5",
        "{}",
        '{"arguments": null}',
        '{"arguments": []}',
        '{"arguments": "SET a b"}',
        '{"arguments": ["SET", 5]}',
        '{"arguments": ["SET", {"base64": "?"}]}',
        '{"arguments": ["SET", {"base64": 5}]}',
        '{"arguments": ["SET", {"base65": "aa"}]}',
        "\xff",
        "[" * 100_000,
    ],
)
def test_damaged_file(server: LocalServer, client: redis.Redis, tmp_path: Path, line: str) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text('{"arguments": ["SET", "a", "b"]}\n\n' + line, "latin-1")
    with pytest.raises(SourceError, match=r"rejects.jsonl, line 3, was not written by rejects="):
        fastresp.mass_insert(fastresp.read_rejects(path), server=server.url)
    done = run("load", path, "--from-rejects", REDIS_URL=server.url)
    assert "line 3, was not written by --rejects;" in done.stderr
    assert client.dbsize() == 0  # nothing was sent


@pytest.mark.parametrize(
    "commands",
    [
        [("MULTI",), ("LPUSH", "text", "b"), ("EXEC",)],  # an error inside the reply
        [("exec",)],  # the reply itself is an error
        [("EVAL", "return {redis.error_reply('ERR x')}", "0")],
    ],
    ids=lambda commands: commands[-1][0],
)
def test_errors_of_transactions_are_not_resent(
    server: LocalServer, client: redis.Redis, insert: Insert, tmp_path: Path, commands: Any
) -> None:
    client.set("text", "x")
    path = tmp_path / "rejects.jsonl"
    report = insert(
        [("LPUSH", "text", "a"), *commands],
        server=server.url, connections=1, rejects=path, on_error="collect",
    )  # fmt: skip
    assert report.failed == 2
    client.delete("text")
    with pytest.raises(SourceError, match=r"line 2: .*resend .* from its source"):
        insert(fastresp.read_rejects(path), server=server.url)
    for options in ([], ["--dry-run"]):
        done = run("load", path, "--from-rejects", *options, REDIS_URL=server.url)
        assert (done.exit_code, "remove the line" in done.stderr) == (1, True)
    assert client.dbsize() == 0  # nothing was sent
    assert list(fastresp.read_rejects(path, limit=1)) == [["LPUSH", "text", "a"]]


# Commands that may have passwords, and the indexes of these arguments.
SECRETS: list[tuple[list[str], list[int]]] = [
    (["AUTH", SECRET], [1]),
    (["auth", "user", SECRET], [1, 2]),
    (["ACL", "SETUSER", "bob", "on", f">{SECRET}"], [2, 3, 4]),
    (["acl", "setuser", SECRET], [2]),
    (["CONFIG", "SET", "requirepass", SECRET], [3]),
    (["config", "set", "maxmemory", "5", "MASTERAUTH", SECRET, "hz", "10"], [5]),
    (["CONFIG", "SET", "primaryauth", SECRET, "tls-key-file-pass", SECRET], [3, 5]),
    (["HELLO", "3", "AUTH", "bob", SECRET, "SETNAME", "x"], [3, 4]),
    (["MIGRATE", "h", "1", "AUTH", "0", "5", "AUTH", SECRET, "KEYS", "AUTH", "b"], [7]),
    (["MIGRATE", "h", "1", "", "0", "5", "COPY", "auth2", "auth", SECRET, "KEYS", "b"], [8, 9]),
    (["SENTINEL", "SET", "AUTH", "auth-pass", SECRET], [4]),
    (["SENTINEL", "CONFIG", "SET", "sentinel-pass", SECRET], [4]),
]
PLAIN = [
    ["SET", "AUTH", SECRET], ["AUTH"], ["ACL", "WHOAMI"], ["CONFIG", "GET", "requirepass"],
    ["CONFIG", "SET", "requirepass"], ["MIGRATE", "h", "1", "k", "0", "5", "AUTH"], ["CONFIG"],
    ["SENTINEL", "SET"], ["HELLO", "3"], ["AUTHOR", "x"],
]  # fmt: skip


@pytest.mark.parametrize(("words", "places"), SECRETS, ids=lambda each: " ".join(map(str, each)))
def test_passwords(words: list[str], places: list[int]) -> None:
    arguments = tuple(word.encode() for word in words)
    assert hidden_arguments(arguments) == places
    error = CommandError(f"ERR bad '{SECRET}'", index=0, arguments=arguments)
    for shown in (str(error), repr(error), str(error.arguments), reject_line(error), error.text):
        if places and words[0] != "ACL":
            assert SECRET not in shown
    assert SECRET not in str(error.arguments)
    assert error.redacted and len(error.arguments or ()) == len(arguments)
    assert SECRET.encode() not in b" ".join(redacted(arguments))
    if words[0] != "HELLO":
        shown = shown_command(fastresp.pack(*words))
        assert SECRET not in shown and shown.count("(redacted)") == len(places)
        assert shown.startswith(words[0] + " ")


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_no_passwords(words: list[str]) -> None:
    arguments = tuple(word.encode() for word in words)
    assert redacted(arguments) is arguments
    error = CommandError("ERR x", arguments=arguments)
    assert (error.arguments, error.redacted) == (arguments, False)


@pytest.fixture
def guarded(start_server: Callable[..., LocalServer]) -> LocalServer:
    """A server that rejects all commands with passwords."""
    server = start_server()
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL SETUSER default -auth -acl -config +acl|whoami")
    return server


LOAD = [("AUTH", SECRET), ("ACL", "SETUSER", "bob", ">" + SECRET), ("SET", "a", 1),
        ("CONFIG", "SET", "requirepass", SECRET)]  # fmt: skip


def test_load(insert: Insert, guarded: LocalServer, tmp_path: Path) -> None:
    """The report, its errors, the rejects and the calls of a callable have no password."""
    path = tmp_path / "rejects.jsonl"
    given: list[CommandError] = []
    url = guarded.url
    report = insert(LOAD, server=url, rejects=path, on_error="collect")
    other = insert(LOAD, server=url, rejects=given.append, on_error="collect")
    assert report.failed == other.failed == 3
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(LOAD, server=url)
    shown = [path.read_text(), repr(given), repr([vars(each) for each in given])]
    shown += [str(each) + repr(vars(each)) for each in (report, other, caught.value)]
    shown += [repr([vars(each) for each in report.errors])]
    for text in shown:
        assert SECRET not in text
    assert path.read_text().count('"(redacted)"') == 1 + 2 + 1
    with pytest.raises(SourceError, match=r"line 1: this command had a password"):
        insert(fastresp.read_rejects(path), server=url)


def test_wrong_password_in_an_error_reply(server: LocalServer, insert: Insert) -> None:
    """The server's error quotes an ACL rule that it does not understand."""
    data = [("ACL", "SETUSER", "bob", f"#{SECRET}")]
    report = insert(data, server=server.url, on_error="collect")
    assert SECRET not in str(report) and "modifier '(redacted)'" in report.errors[0].text


# Commands whose error quotes the password, and the transport.
QUOTING: dict[str, tuple[list[tuple[object, ...]], Any]] = {
    "socket": ([], "socket"),
    "redis-cli": ([], "redis-cli"),
    "after 8 MiB of failed commands": ([("RPUSH", "text", b"x" * (9 << 20))], "socket"),
}


@pytest.mark.parametrize("way", QUOTING)
@pytest.mark.parametrize("password", [SECRET, f"a' b': {SECRET}'", f"({SECRET}", SECRET * 400])
def test_quoted_password(server: LocalServer, way: str, password: str) -> None:
    before, transport = QUOTING[way]
    data = [("SET", "text", 1), *before, ("ACL", "SETUSER", "bob", password)]
    report = fastresp.mass_insert(
        data, server=server.url, transport=transport, connections=1, on_error="collect"
    )
    assert report.failed == 1 + len(before)
    shown = str(report) + repr([vars(each) for each in report.errors])
    assert SECRET not in shown and "'(redacted)" in report.errors[-1].text


def test_quoted_password_in_a_transaction(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    data = [("MULTI",), ("ACL", "SETUSER", "bob", SECRET), ("EXEC",)]
    report = fastresp.mass_insert(data, server=server.url, rejects=path, on_error="collect")
    assert SECRET not in path.read_text() + str(report)
    assert "modifier '(redacted)': Syntax error" in report.errors[0].text
    *_, answers = fastresp.iter_replies(data, server=server.url, on_error="collect")
    assert SECRET not in repr([vars(each) for each in answers])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ERR Invalid argument 'a' b' for CONFIG SET 'masterauth' - bad", "ERR Invalid argument "
         "'(redacted)' for CONFIG SET 'masterauth' - bad"),
        ("ERR Invalid argument 'x' to SENTINEL SET 'auth-pass'", "ERR Invalid argument "
         "'(redacted)' to SENTINEL SET 'auth-pass'"),
        ("ERR unknown command 'config', with args beginning with: 'SET' 'requirepass' 'x' ",
         "ERR unknown command 'config', with args beginning with: (redacted)"),
        ("ERR unknown command `AUTH`, with args beginning with: `x`, ",
         "ERR unknown command `AUTH`, with args beginning with: (redacted)"),
        ("ERR Invalid argument 'x' for CONFIG SET 'maxmemory' - bad", ""),
        ("ERR unknown command 'SETT', with args beginning with: 'a' 'b' ", ""),
    ],
)  # fmt: skip
def test_quoted_password_without_a_command(text: str, shown: str) -> None:
    """Error texts of other versions, and of servers with renamed commands."""
    assert CommandError(text).text == (shown or text)


def test_other_callers(server: LocalServer) -> None:
    [reply] = fastresp.iter_replies([("AUTH", "u", SECRET)], server=server.url, on_error="collect")
    assert SECRET not in repr(vars(reply)) and reply.arguments[1:] == (b"(redacted)",) * 2
    with pytest.raises(CommandError) as caught:
        fastresp.execute("AUTH", "u", SECRET, server=server.url)
    assert SECRET not in repr(vars(caught.value)) + str(caught.value)


def test_command_line_shows_no_password(guarded: LocalServer, tmp_path: Path) -> None:
    source, damaged = tmp_path / "x.resp", tmp_path / "damaged.resp"
    fastresp.dump(LOAD, None, source)
    damaged.write_bytes(fastresp.pack(*LOAD[0]) + b"nonsense\r\n")
    for command in (
        ["send", source, "--yes"],
        ["send", source, "--yes", "--json"],
        ["send", source, "--dry-run"],
        ["send", source, "--dry-run", "--json"],
        ["check", source],
        ["check", damaged],
        ["send", damaged, "--yes"],
    ):
        done = run(*command, REDIS_URL=guarded.url)
        assert SECRET not in done.stdout + done.stderr
        if command != ["check", source]:
            assert "(redacted)" in done.stdout + done.stderr or command == ["send", source, "--yes"]


class Secret:
    def __repr__(self) -> str:
        return SECRET


@pytest.mark.parametrize("value", [Secret(), [SECRET], {SECRET: 1}, SECRET + "\ud800"])
def test_value_that_cannot_be_sent(value: object) -> None:
    for attempt in (
        lambda: fastresp.pack("AUTH", value),
        lambda: fastresp.pack(b"auth", "user", value),
        lambda: fastresp.pack("CONFIG", "SET", "requirepass", value),
        lambda: fastresp.pack_many([["AUTH", value]]),
        lambda: list(fastresp.Writer(fastresp.Template("AUTH {0}")).chunks([(value,)])),
        lambda: list(fastresp.Writer(fastresp.Template("AUTH x{pw}")).chunks([{"pw": value}])),
        lambda: fastresp.pack("AUTH", value, default=lambda each: each),
    ):
        with pytest.raises(EncodeError, match="not shown since it may be a password") as caught:
            attempt()
        assert SECRET not in repr(caught.value) + repr(caught.value.__cause__)
        assert caught.value.argument is not None


def test_columns_with_a_password() -> None:
    table = pa.table({"pw": pa.array([[SECRET]])})
    with pytest.raises(fastresp.FastrespError) as caught:
        list(fastresp.iter_replies(table, "AUTH {pw}", server="redis://127.0.0.1:1"))
    assert SECRET not in str(caught.value)
