"""copy(follow=True): the commands after the snapshot are applied to the target."""

from __future__ import annotations

import json
import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import PIPE

import preloaded
import pytest
import redis
from command_line import PROGRAM, invoke
from every_encoding import contents, differences, fill
from proxy import DOWN, Fault, Proxy
from test_from_replica import SERVERS, two_servers

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.load.copying.following import EXPIRING, Following
from fastresp.load.copying.options import CopyOptions
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import Server
from fastresp.sources.replica_stream import ReplicaStream

OPTIONS = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"]
StartServer = Callable[..., LocalServer]
Two = tuple[LocalServer, redis.Redis, redis.Redis]


@pytest.fixture
def two(start_server: StartServer) -> Iterator[Two]:
    """A source, and clients of the source and of a target."""
    source, target = start_server(*OPTIONS), start_server(*OPTIONS)
    with redis.Redis.from_url(source.url) as client, redis.Redis.from_url(target.url) as copied:
        yield source, client, copied


class Writer:
    """Writes with commands that must run once and in their order, in a thread."""

    def __init__(self, client: redis.Redis, seconds: float, per_second: float) -> None:
        self.written = 0
        self._client, self._seconds, self._per_second = client, seconds, per_second
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _write(self) -> None:
        source, begun = random.Random(1), time.monotonic()
        while time.monotonic() < begun + self._seconds:
            pipeline = self._client.pipeline(transaction=source.random() < 0.5)
            for number in range(20):
                n = self.written + number
                pipeline.incr(f"n:{number}")
                pipeline.rpush("list", n)
                pipeline.xadd("stream", {"n": n})
                pipeline.sadd("set", n, n % 100)
                pipeline.spop("set")
                pipeline.hincrby("hash", n % 50, n)
                pipeline.set(f"gone:{number}", n, px=200)
                pipeline.eval("redis.call('append', KEYS[1], ARGV[1])", 1, "text", n)
            pipeline.execute()
            self.written += 160
            time.sleep(max(0.0, begun + self.written / self._per_second - time.monotonic()))


@contextmanager
def stops_after(writer: Writer, client: redis.Redis) -> Iterator[Callable[[fastresp.Report], None]]:
    """Yield a function for ``progress`` that ends the copy as Ctrl-C does, once it has all."""

    def show(report: fastresp.Report) -> None:
        # EXISTS deletes expired keys, and the target must also delete them.
        gone = writer.ended and not client.exists(*(f"gone:{number}" for number in range(20)))
        if gone and report.offset == client.info("replication")["master_repl_offset"]:
            raise KeyboardInterrupt

    yield show


def digests(*clients: redis.Redis) -> set[bytes]:
    return {client.execute_command("DEBUG", "DIGEST") for client in clients}


def check_followed(
    source: LocalServer, client: redis.Redis, copied: redis.Redis, fault: Fault, seconds: float
) -> None:
    """Copy while a client writes; the connection to the source has a fault meanwhile."""
    fill(client)
    with (
        redis.Redis.from_url(source.url) as writing,
        Proxy(str(source.socket), fault) as proxy,
        Writer(writing, seconds, 20_000) as writer,
        stops_after(writer, client) as show,
    ):
        report = fastresp.copy(proxy.url, copied, from_replica=True, follow=True, progress=show)
    assert proxy.done
    assert report.offset == client.info("replication")["master_repl_offset"]
    assert writer.written / 2 < report.followed
    assert differences(contents(client), contents(copied)) == []
    assert len(digests(client, copied)) == 1


def test_follow(two: Two) -> None:
    check_followed(*two, Fault("cut", DOWN, at=500_000), seconds=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_follow_with_lost_connections(two: Two, seed: int) -> None:
    at = random.Random(seed).randrange(600_000, 2_000_000)
    kind = ("none", "cut", "none", "reset")[seed % 4]
    check_followed(*two, Fault(kind, DOWN, at=at), seconds=4)


@pytest.mark.slow
@pytest.mark.parametrize("of_target", SERVERS)
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_pair_of_servers(of_source: str, of_target: str) -> None:
    delay = ["--repl-diskless-sync-delay", "0"]
    with two_servers(of_source, of_target, *delay) as (client, copied):
        fill(client)
        client.delete("hash:expiring", "hash:expiring table")
        with Writer(client, 1, 20_000) as writer, stops_after(writer, client) as show:
            report = fastresp.copy(client, copied, from_replica=True, follow=True, progress=show)
        assert report.followed > writer.written / 2
        assert differences(contents(client), contents(copied)) == []


def test_json_log_and_functions(two: Two) -> None:
    source, client, copied = two
    client.function_load("#!lua name=l\nredis.register_function('f', function() return 1 end)")
    target = f"unix://{copied.get_connection_kwargs()['path']}"
    options = ["--from-replica", "--follow", "--log", "json"]
    command = [*PROGRAM, "copy", source.url, target, *options]
    with preloaded.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        while not lines or '"following"' not in lines[-1]:
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    found = json.loads(lines[-1])
    assert found.keys() >= {"followed", "offset", "lag_bytes", "lag_seconds"}
    assert any("1 function library not copied" in line for line in lines)


def test_until_lag(two: Two) -> None:
    source, client, copied = two
    client.set("a", 1)
    target = copied.get_connection_kwargs()["path"]
    arguments = ("copy", source.url, f"unix://{target}", "--from-replica", "--follow")
    done = invoke(*arguments, "--until-lag", "0", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["rows"], found["followed"]) == (Exit.OK, 1, 0)
    assert (found["lag_bytes"], found["lag_seconds"]) == (0, 0)
    assert copied.get("a") == b"1"


def wait_for(condition: Callable[[], object]) -> bool:
    end = time.monotonic() + 10
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def following(
    source: LocalServer | redis.Redis, copied: redis.Redis, **options: object
) -> Iterator[list[BaseException | None]]:
    """Follow in a thread; at the end of the block, stop as Ctrl-C does. Yield its exception."""
    url = source.url if isinstance(source, LocalServer) else source
    begun, ended = threading.Event(), threading.Event()
    outcome: list[BaseException | None] = []

    def show(report: fastresp.Report) -> None:
        if report.offset is not None:
            begun.set()
            if ended.is_set() and not report.lag_bytes:
                raise KeyboardInterrupt

    def follow() -> None:
        try:
            always = {"from_replica": True, "follow": True, "progress": show}
            fastresp.copy(url, copied, **always, **options)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        assert begun.wait(10)
        yield outcome
    finally:
        ended.set()
        thread.join()


def test_wait_at_the_source_includes_the_target(two: Two) -> None:
    source, client, copied = two
    client.set("before", 1)
    with following(source, copied) as errors:
        client.set("a", 1)
        assert wait_for(lambda: client.wait(1, 1000) == 1)
        assert copied.get("a") == b"1"
    assert not errors


def test_transactions_stay_whole(two: Two) -> None:
    source, client, copied = two
    with following(source, copied):
        client.pipeline(transaction=True).set("a", 1).incr("a").publish("channel", "x").execute()
        assert wait_for(lambda: copied.get("a") == b"2")
    assert copied.get("a") == b"2"
    assert copied.info("commandstats")["cmdstat_exec"]["calls"] == 1


def test_what_is_not_applied_is_said(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    source, client, copied = two
    with (
        caplog.at_level(logging.WARNING, "fastresp"),
        redis.Redis.from_url(f"{source.url}?db=3") as third,
        following(source, copied) as errors,
    ):
        for number in range(3):
            third.set(f"third:{number}", 1)
            client.publish("channel", "message")
        client.set("a", 1)
        assert wait_for(lambda: errors or copied.exists("a"))
    assert (copied.keys(), errors) == ([b"a"], [])
    assert [record.getMessage() for record in caplog.records] == [
        EXPIRING,
        "commands of other databases are not applied to the target",
        "PUBLISH commands, which change no keys, are not applied to the target",
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "command", ["FLUSHALL", "FLUSHDB", "SWAPDB 1 0", "MOVE b 0", "COPY b b DB 0"]
)
def test_commands_that_can_not_be_applied(two: Two, command: str) -> None:
    source, client, copied = two
    client.set("a", 1)
    with redis.Redis.from_url(f"{source.url}?db=1") as first:
        first.set("b", 1)
    name = command.partition(" ")[0]
    with (
        redis.Redis.from_url(f"{source.url}?db={int('b' in command)}") as running,
        following(source, copied) as errors,
    ):
        client.set("before", 1)
        running.execute_command(command)
        assert wait_for(lambda: errors)
    assert f"the source ran {name} before replication offset" in str(errors[0])
    assert isinstance(errors[0], fastresp.SourceError)
    assert sorted(copied.keys()) == [b"a", b"before"]


def test_a_backlog_that_is_too_small(two: Two) -> None:
    source, client, copied = two
    client.config_set("repl-backlog-size", 16384)
    with following(source, copied) as errors:
        lost = client.pipeline(transaction=True).client_kill_filter(_type="replica")
        for number in range(50):
            lost.set(f"key:{number}", "x" * 10_000)
        lost.execute()
        assert wait_for(lambda: errors)
    assert "raise its repl-backlog-size, and copy again" in str(errors[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(two: Two, number: signal.Signals) -> None:
    source, client, copied = two
    target = f"unix://{copied.get_connection_kwargs()['path']}"
    client.set("a", 1)
    command = [*PROGRAM, "copy", source.url, target, "--from-replica", "--follow", "--json"]
    with preloaded.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert wait_for(lambda: copied.exists("a"))
        client.set("b", 1)
        assert wait_for(lambda: copied.exists("b"))
        process.send_signal(number)
        output, words = process.communicate(timeout=30)
    found = json.loads(output)
    assert (process.returncode, found["exit_code"], words) == (Exit.OK, Exit.OK, f"{EXPIRING}\n")
    assert found["offset"] == client.info("replication")["master_repl_offset"]
    assert found["lag_bytes"] == found["lag_seconds"] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"follow": True}, "follow needs from_replica=True"),
        ({"from_replica": True, "until_lag": 1}, "until_lag needs follow=True"),
        ({"from_replica": True, "follow": True, "until_lag": -1}, "until_lag must be"),
        ({"from_replica": True, "follow": True, "match": "a*"}, "match can't be combined with"),
    ],
)
def test_options(server: LocalServer, options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fastresp.copy(server.url, server.url, **options)


def test_a_source_that_is_a_replica(two: Two, start_server: StartServer, port: int) -> None:
    """Its stream begins in the database that its primary selected earlier."""
    primary = start_server(*OPTIONS, "--port", str(port))
    source, client, copied = two
    with redis.Redis.from_url(primary.url) as writing:
        client.execute_command("REPLICAOF", "127.0.0.1", port)
        writing.set("before", 1)
        assert wait_for(lambda: client.exists("before"))
        with following(source, copied) as errors:
            writing.set("after", 1)
            assert wait_for(lambda: errors or copied.exists("after"))
    assert (errors, sorted(copied.keys())) == ([], [b"after", b"before"])


@pytest.mark.parametrize("delay", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_a_source_that_restarts(start_server: StartServer, two: Two, delay: int) -> None:
    """A source begins its snapshot after a replica was idle for the delay."""
    _, _, copied = two
    source = start_server("--repl-diskless-sync-delay", str(delay))
    client = redis.Redis.from_url(source.url)
    with following(source, copied) as errors:
        source.stop()
        source.start()
        client.set("after", 1)
        assert wait_for(lambda: errors)
    client.close()
    assert "no longer has the commands after replication offset" in str(errors[0])


def test_error_replies_on_the_command_line(two: Two) -> None:
    source, client, copied = two
    target = f"unix://{copied.get_connection_kwargs()['path']}"
    client.set("a", 1)
    command = [*PROGRAM, "copy", source.url, target, "--from-replica", "--follow", "--json"]
    with preloaded.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert wait_for(lambda: copied.exists("a"))
        copied.set("list", "text")
        client.rpush("list", 1)
        output, _ = process.communicate(timeout=30)
    found = json.loads(output)
    assert process.returncode == found["exit_code"] != Exit.OK
    assert found["errors_by_code"] == {"WRONGTYPE": 1}


@pytest.mark.parametrize("name", ["CONFIG", "SHUTDOWN", "NOSUCHCOMMAND"])
def test_commands_that_do_not_write_or_are_unknown(two: Two, name: str) -> None:
    """They never reach the target, whatever a source sends."""
    source, _, copied = two
    options = CopyOptions(server=copied)
    stream = ReplicaStream(Server(source.url), 5)
    applied = Following(stream, options, fastresp.Report("socket"), 0, None)
    with pytest.raises(fastresp.SourceError, match=f"the source ran {name} before"):
        applied._commands_of(name.encode(), [name.encode(), b"x"])
    assert applied._commands_of(b"SET", [b"SET", b"a", b"1"]) == [[b"SET", b"a", b"1"]]
    unknown = Following(stream, options, fastresp.Report("socket"), -1, None)
    with pytest.raises(fastresp.SourceError, match="ran SET in an unknown database"):
        unknown._commands_of(b"SET", [b"SET", b"a", b"1"])


def test_keys_of_other_databases_are_said(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    source, _, copied = two
    with redis.Redis.from_url(f"{source.url}?db=2") as second:
        second.mset({"a": 1, "b": 2})
    with caplog.at_level(logging.WARNING, "fastresp"):
        fastresp.copy(source.url, copied, from_replica=True)
    assert [each.getMessage() for each in caplog.records if each.msg != EXPIRING] == [
        f"snapshot of {source.socket}: skipped 2 keys of databases other than 0; to copy another "
        "database, pass db=N (--db N)"
    ]


def test_keys_that_were_not_copied_are_not_followed(two: Two) -> None:
    source, client, copied = two
    client.set("a", 1)
    copied.set("a", 2)
    options = {"from_replica": True, "follow": True, "until_lag": 0}
    with pytest.raises(fastresp.LoadErrors):
        fastresp.copy(source.url, copied, on_error="collect", **options)
    with pytest.raises(ValueError, match="can't be followed"):
        fastresp.copy(source.url, copied, exists="skip", **options)
    client.acl_setuser("copier", enabled=True, nopass=True, commands=["+@all", "-info"])
    url = source.url.replace("unix://", "unix://copier:x@")
    with pytest.raises(fastresp.SourceError, match=r"\+info"):
        fastresp.copy(url, copied, exists="replace", **options)
