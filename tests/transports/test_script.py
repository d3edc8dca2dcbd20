"""Scripts as commands: loaded first, resent when forgotten, and each row run once."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from loads import Insert, insert_sync
from scripts import ADD, KEYS, ROWS, data, expected, flushing, sums
from server_programs import WHEEL_SERVERS, located
from waiting import until_loaded

import fastresp
from fastresp import Script
from fastresp.encode.script import ForgottenScripts, is_forgotten, script_of
from fastresp.resp.split import arguments
from fastresp.server.local_server import LocalServer
from fastresp.transports.filters import ScriptFilter
from fastresp.transports.window import Window


def test_dump_is_whole(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """The file can be loaded without loading a script first."""
    template = ["SADD users {id}", ADD.command("u:{id}", "{n}"), Script("").command()]
    count = fastresp.dump(data(10), template, tmp_path / "x.resp")
    client.script_flush()
    report = fastresp.mass_insert(fastresp.read(tmp_path / "x.resp"), server=server.url)
    assert count == report.replies == 30
    assert client.hget("u:9", "n") == b"10"
    assert client.scard("users") == 10


def test_transport(server: LocalServer) -> None:
    command = ADD.command("u:{id}", "{n}")
    with pytest.raises(fastresp.TransportError, match=r"has forgotten; use transport='socket'"):
        fastresp.mass_insert(data(10), command, server=server.url, transport="redis-cli")


@pytest.mark.slow
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_scripts_forgotten_repeatedly(
    insert: Insert, server: LocalServer, client: redis.Redis, columns: bool, connections: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    source: Any = data()
    if columns:
        source = pa.table({"id": [i % KEYS for i in range(ROWS)], "n": list(range(1, ROWS + 1))})
    with flushing(server) as count:
        report = insert(
            source, ADD.command("u:{id}", "{n}"), server=server.url, connections=connections,
            max_errors=0, rejects=tmp_path / "rejects",
        )  # fmt: skip
    assert count[0] >= 5
    assert sums(client) == expected()
    assert (report.rows, report.commands, report.replies) == (ROWS,) * 3
    assert (report.failed, report.errors, report.unsent, report.in_doubt) == (0, [], 0, 0)
    assert (tmp_path / "rejects").read_text() == ""
    once = sum(len(chunk) for chunk in fastresp.Writer(ADD.command("u:{id}", "{n}")).chunks(data()))
    assert report.bytes_sent > once


@pytest.mark.slow
def test_scripts_forgotten_continuously(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    with flushing(server, 0):
        report = insert(data(), ADD.command("u:{id}", "{n}"), server=server.url)
    assert (report.commands, report.replies, report.failed) == (ROWS, ROWS, 0)
    assert sums(client) == expected()


@pytest.mark.few(1)
def test_only_the_script_is_resent(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """Rows have several commands and two scripts, and errors among them have their rows."""
    push = Script("redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LLEN', KEYS[1])")
    template = ["INCR count", ADD.command("u:{id}", "{n}"), push.command("list", "{n}")]
    wrong = range(7, KEYS, 1000)
    for i in wrong:
        client.set(f"u:{i}", "text")
    with flushing(server), pytest.raises(fastresp.LoadErrors) as caught:
        insert(data(100_000), template, server=server.url, connections=2)
    report = caught.value.report
    assert (report.rows, report.commands, report.replies) == (100_000, 300_000, 300_000)
    assert (report.failed, report.unsent, report.in_doubt) == (5 * len(wrong), 0, 0)
    rows = [i for i in range(100_000) if i % KEYS in wrong]
    assert sorted(error.row for error in report.errors if error.row is not None) == rows
    for error in report.errors:
        assert error.index == 3 * (error.row or 0) + 1
        assert error.arguments == (
            b"EVALSHA", ADD.sha1.encode(), b"1", b"u:%d" % ((error.row or 0) % KEYS),
            b"%d" % ((error.row or 0) + 1),
        )  # fmt: skip
        assert error.code == "WRONGTYPE"
    assert client.get("count") == b"100000"
    assert sorted(map(int, client.lrange("list", 0, -1))) == list(range(1, 100_001))


def test_errors_of_the_script(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    script = Script("""
        if tonumber(ARGV[1]) % 1000 == 0 then
            return redis.error_reply('ODD ' .. ARGV[1])
        end
        return 1
    """)
    report = insert(
        range(20_000), script.command("k{0}", "{0}"), server=server.url, on_error="collect",
        rejects=tmp_path / "rejects",
    )  # fmt: skip
    assert [(e.row, e.index, e.text) for e in report.errors] == [
        (i, i, f"ODD {i}") for i in range(0, 20_000, 1000)
    ]
    rejects = [json.loads(line) for line in (tmp_path / "rejects").read_text().splitlines()]
    assert [(each["row"], each["error"]) for each in rejects] == [
        (i, f"ODD {i}") for i in range(0, 20_000, 1000)
    ]


@pytest.mark.slow
def test_stopped_while_it_is_forgotten(insert: Insert, server: LocalServer) -> None:
    """Commands that were not run count as unsent."""
    script = Script("redis.call('INCR', 'ran') return redis.call('LPUSH', KEYS[1], 1)")
    with flushing(server), redis.Redis.from_url(server.url) as client:
        client.set("k60000", "text")
        with pytest.raises(fastresp.LoadErrors) as caught:
            insert(itertools.count(), script.command("k{0}"), server=server.url, on_error="stop")
        report = caught.value.report
        assert report.errors[0].row == 60_000
        assert (report.failed, report.in_doubt) == (1, 0)
        assert client.get("ran") == b"%d" % report.replies
        assert report.commands == report.replies


@pytest.mark.few(0)
def test_lost_while_it_is_forgotten(
    insert: Insert, start_server: Callable[..., LocalServer]
) -> None:
    """Acknowledged commands ran, those in doubt may have, and unsent ones did not."""
    server = start_server("--appendonly", "yes", "--appendfsync", "no")

    def source() -> Iterator[int]:
        for i in itertools.count():
            if i == 150_000:
                server.stop()
            yield i

    with flushing_quietly(server), pytest.raises(fastresp.TransportError) as caught:
        insert(source(), ADD.command("u", "1"), server=server.url)
    report = caught.value.report
    assert report is not None
    server.start()
    with redis.Redis.from_url(server.url) as client:
        until_loaded(client)
        ran = int(client.hget("u", "n") or 0)
    assert report.replies <= ran <= report.commands
    assert report.rows >= report.commands


@contextmanager
def flushing_quietly(server: LocalServer) -> Iterator[None]:
    """Like ``flushing()``, but the server may end."""
    done = threading.Event()

    def flush() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not done.wait(0.005):
                try:
                    client.script_flush()
                except redis.RedisError:
                    return

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_large_arguments(server: LocalServer, client: redis.Redis) -> None:
    script = Script("return redis.call('APPEND', KEYS[1], ARGV[1])")
    rows = [(i % 3, "x" * (600_000 + i)) for i in range(60)]
    with flushing(server, 0.001):
        report = insert_sync(rows, script.command("k{0}", "{1}"), server=server.url)
    assert (report.commands, report.failed) == (60, 0)
    for key in range(3):
        assert client.strlen(f"k{key}") == sum(len(text) for k, text in rows if k == key)


@pytest.mark.slow
def test_over_tls(insert: Insert, tls: Callable[..., str], tls_server: LocalServer) -> None:
    with flushing(tls_server), redis.Redis.from_url(tls_server.url) as client:
        report = insert(data(100_000), ADD.command("u:{id}", "{n}"), server=tls())
        assert sums(client) == expected(100_000)
    assert (report.commands, report.replies, report.failed) == (100_000, 100_000, 0)


@pytest.mark.few(1)
def test_rate_limit(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    with flushing(server, 0.02):
        report = insert(data(2000), ADD.command("u", "{n}"), server=server.url, rate_limit=4000)
    assert (report.commands, report.replies, report.failed) == (2000, 2000, 0)
    assert client.hget("u", "n") == b"%d" % sum(range(1, 2001))


def test_syntax_error(insert: Insert, server: LocalServer) -> None:
    """It is reported before a row is read."""
    source = iter([1])
    with pytest.raises(fastresp.CommandError, match="ERR Error compiling script") as caught:
        insert(source, Script("local = 1").command("k{0}"), server=server.url)
    assert caught.value.arguments == (b"SCRIPT", b"LOAD", b"local = 1")
    assert caught.value.__notes__ == [
        "fastresp: the server refuses the script; no command was sent"
    ]
    assert list(source) == [1]


@pytest.mark.parametrize("right", ["evalsha", "eval", "script|load"])
def test_missing_permissions(
    insert: Insert, start_server: Callable[..., LocalServer], right: str
) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", f"-{right}")
        url = f"{server.url}?username=u&password=p"
        with pytest.raises(fastresp.TransportError, match=r"permissions.*\+script\|load \+evalsha"):
            insert(data(10), ADD.command("u:{id}", "{n}"), server=url)
        rights = ["-@all", "+hincrby", "+eval", "+evalsha", "+script|load"]
        client.execute_command("ACL", "SETUSER", "u", *rights)
        insert(data(10), ADD.command("u:{id}", "{n}"), server=url)
        assert client.hget("u:9", "n") == b"10"


@pytest.mark.slow
@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_error_replies_of_servers(server_name: str) -> None:
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        with redis.Redis.from_url(server.url) as client, flushing(server):
            report = fastresp.mass_insert(data(), ADD.command("u:{id}", "{n}"), server=server.url)
            assert (report.replies, report.failed) == (ROWS, 0)
            assert sums(client) == expected()
        [error] = fastresp.iter_replies(
            [("EVALSHA", "0" * 40, 0)], server=server.url, on_error="collect"
        )
        assert is_forgotten(error.text)
        assert is_forgotten(error.text.encode())
        # The rest of a transaction still runs, so scripts are refused in one.
        *_, reply = fastresp.iter_replies(
            [("MULTI",), ("SET", "a", 1), ("EVALSHA", "0" * 40, 0), ("EXEC",)], server=server.url
        )
        assert [str(reply[0]), type(reply[1])] == ["b'OK'", fastresp.CommandError]
        assert is_forgotten(reply[1].text)


def test_noscript_error_of_the_script_itself(insert: Insert, server: LocalServer) -> None:
    script = Script("return redis.error_reply('NOSCRIPT of my own')")
    report = insert(range(5), script.command(), server=server.url, on_error="collect")
    assert (report.commands, report.failed) == (5, 5)


def test_script_that_is_never_known_becomes_an_error(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """After two more attempts; here the script itself replies NOSCRIPT."""
    script = Script(
        "redis.call('INCR', 'tries') return redis.error_reply('NOSCRIPT No matching script.')"
    )
    report = insert(
        [(i,) for i in range(5)], script.command("k{0}"), server=server.url, on_error="collect"
    )
    assert client.get("tries") == b"15"
    assert (report.rows, report.commands, report.replies, report.failed) == (5, 5, 5, 5)
    assert [(error.row, error.index) for error in report.errors] == [(i, i) for i in range(5)]
    assert report.errors[4].arguments == (b"EVALSHA", script.sha1.encode(), b"1", b"k4")


def evalsha(i: int) -> bytes:
    return fastresp.pack("EVALSHA", ADD.sha1, 1, f"u:{i}", "x" * 100)


def test_how_commands_are_resent() -> None:
    """The first command and one every 16 KiB include the script; in the last attempt, all do."""
    scripts = ForgottenScripts({ADD.sha1.encode(): ADD.text})
    assert script_of(evalsha(1)) == ADD.sha1.encode()
    assert script_of(fastresp.pack("EVAL", "return 1", 0)) == b""
    for tries, share in ((1, range(100, 150)), (2, [10_000])):
        repeats = [(evalsha(i), tries) for i in range(10_000)]
        at, whole = 0, 0
        while at < len(repeats):
            requests = scripts.requests(repeats[at:], 1 << 19)
            assert requests
            tried = repeats[at : at + len(requests)]
            for number, (request, (command, _)) in enumerate(zip(requests, tried, strict=True)):
                words, meant = arguments(request), arguments(command)
                assert words[2:] == meant[2:]
                assert words[:2] in (meant[:2], (b"EVAL", ADD.text))
                assert number or words[0] == b"EVAL"
                whole += words[0] == b"EVAL"
            at += len(requests)
        assert whole in share


TEMPLATE = ADD.command("u:{0}", "1")


def sent_window() -> Window:
    """A window whose 20 commands were sent."""
    window = Window(filters=[ScriptFilter(ForgottenScripts(TEMPLATE.scripts))])
    for chunk in fastresp.Writer(TEMPLATE, chunk_bytes=400).chunks(range(20)):
        window.add(chunk)
    while (sending := window.sending) is not None:
        sending.written.append(sending.size)
    return window


def numbers(window: Window) -> tuple[int, int, int, int]:
    return window.refusals.commands, len(window.pending), window.made, window.unsent


def test_interruption_resends_nothing_twice() -> None:
    """Errors that are still in the list after an interruption are not counted again."""
    window = sent_window()
    words = b"NOSCRIPT No matching script."
    errors = [(i, words, False) for i in range(3, 9)] + [(9, words, True), (10, b"ERR x", False)]
    left = list(errors)
    window.filter_errors(left)
    assert left == errors[-2:]
    assert numbers(window) == (6, 6, 26, 6)
    again = list(errors)
    window.filter_errors(again)
    assert again == errors[-2:]
    window.filter_errors(again)
    window.acknowledge(11)
    assert numbers(window)[:3] == (6, 6, 26)
    assert not window.has_room
    assert window.totals()[:2] == (20, 14)
    window.refill()
    assert numbers(window) == (6, 0, 26, 6)
    assert window.has_room
    assert window.totals()[:2] == (20, 14)
    assert window.sending is not None
    window.sending.written.append(window.sending.size)
    assert window.totals()[:2] == (20, 20)
    held, at = window.locate(22)
    assert (held.row(at), held.source_index(at), held.command(at, at)) == (5, 5, bytes(
        fastresp.pack("EVALSHA", ADD.sha1, 1, "u:5", 1)
    ))  # fmt: skip
    [chunk] = fastresp.Writer(TEMPLATE).chunks(range(2))
    window.add(chunk)
    assert window.last is not None
    assert (window.last.source_index(0), window.last.row(0)) == (20, 20)


def test_interruption_right_after_a_chunk_is_added() -> None:
    """The chunk counts as resent, and its commands are no longer kept."""

    class Interrupting(deque[Any]):
        def extend(self, chunks: Any) -> None:
            super().extend(chunks)
            raise KeyboardInterrupt

    window = sent_window()
    window.held = Interrupting(window.held)
    window.filter_errors([(i, b"NOSCRIPT No matching script.", False) for i in range(3, 9)])
    with pytest.raises(KeyboardInterrupt):
        window.refill()
    for _ in range(2):
        assert numbers(window) == (6, 0, 26, 6)
        window.refill()


def test_nothing_is_resent_without_need(server: LocalServer) -> None:
    report = insert_sync(data(), ADD.command("u:{id}", "{n}"), server=server.url)
    chunks = fastresp.Writer(ADD.command("u:{id}", "{n}")).chunks(data())
    assert report.bytes_sent == sum(map(len, chunks))


def test_lost_with_a_script_missing(start_server: Callable[..., LocalServer]) -> None:
    """Replies are yielded up to the first gap."""
    server = start_server()

    def source() -> Iterator[int]:
        for i in itertools.count():
            if i == 20_000:
                server.stop()
            yield i

    got: list[bytes] = []
    with flushing_quietly(server), pytest.raises(fastresp.TransportError) as caught:
        for reply in fastresp.iter_replies(
            source(), Script("return ARGV[1]").command("", "{0}"), server=server.url
        ):
            got.append(reply)
    assert got == [b"%d" % i for i in range(len(got))]
    assert caught.value.report is not None
    assert caught.value.report.replies == len(got)
