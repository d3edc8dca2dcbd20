"""Rows that are written one at a time: the same load as ``mass_insert``, and each way to end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from loads import VALUE, commands, in_the_background, whole_prefix

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

COUNT = 3000
ROWS = [{"id": i, "name": f"n{i}", "city": None if i % 3 else "x"} for i in range(COUNT)]
JOB = fastresp.Checkpoint("job", source_id="1")
AGAIN = replace(JOB, resume=True)
TUPLES = [(i % 50, f"item {i}") for i in range(COUNT)]
HSET, RPUSH = "HSET user:{id} {**}", "RPUSH list:{0} {1}"

# Not the same for two loads, or if chunks end elsewhere.
TIMES = {"seconds", "waited_for", "ended_before"}
SIZES = {"bytes_sent"}


def insert(rows: Any, template: Any = None, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(iter(rows), template, **options)


def push(rows: Any, template: Any = None, **options: Any) -> fastresp.Report:
    with fastresp.loader(template, **options) as load:
        for row in rows:
            load.write(row)
    return load.report


async def push_async(rows: Any, template: Any = None, **options: Any) -> fastresp.Report:
    async with fastresp.aio.loader(template, **options) as load:
        for row in rows:
            await load.write(row)
    return load.report


def push_in_asyncio(*arguments: Any, **options: Any) -> fastresp.Report:
    return asyncio.run(push_async(*arguments, **options))


class AwaitedLoader:
    """The asyncio loader with synchronous calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *arguments: Any, **options: Any) -> None:
        self.run = loop.run_until_complete
        self.load = fastresp.aio.loader(*arguments, **options)

    def __enter__(self) -> AwaitedLoader:
        self.run(self.load.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self.run(self.load.__aexit__(*error))

    def write(self, row: Any) -> None:
        self.run(self.load.write(row))

    def flush(self) -> None:
        self.run(self.load.flush())

    @property
    def report(self) -> fastresp.Report:
        return self.load.report


@pytest.fixture(params=["sync", "asyncio"])
def open_loader(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """``loader``, and the asyncio loader with synchronous calls."""
    if request.param == "sync":
        yield fastresp.loader
        return
    loop = asyncio.new_event_loop()
    yield partial(AwaitedLoader, loop)
    loop.close()


def described(error: fastresp.CommandError) -> dict[str, Any]:
    return vars(error) | {"message": str(error)}


def account(report: fastresp.Report, without: set[str]) -> dict[str, Any]:
    """Return what a report counts."""
    found = asdict(report) | {"errors": [*map(described, report.errors)]}
    return {name: value for name, value in found.items() if name not in TIMES | without}


def stored(client: redis.Redis) -> dict[bytes, Any]:
    """Return the keys with their values, without the keys of a checkpoint."""
    keys = sorted(client.keys())
    return {key: client.dump(key) for key in keys if not key.startswith(b"fastresp:")}


def outcome(
    load: Callable[..., fastresp.Report], client: redis.Redis, without: set[str], *arguments: Any,
    **options: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Load into the empty server; return the account, the exception and the keys."""
    client.flushall()
    client.set("user:7", "not a hash")
    client.set("list:7", "not a list")
    error = None
    try:
        report = load(*arguments, **options)
    except Exception as caught:
        error = caught
        report = caught.report  # type: ignore[attr-defined]
    return type(error), account(report, without), stored(client)


CASES = {
    "dicts": (ROWS, HSET, {}),
    "tuples": (TUPLES, RPUSH, {}),
    "lists": ([*map(list, TUPLES)], RPUSH, {}),
    "objects": ([SimpleNamespace(id=i) for i in range(COUNT)], "SET {id} x", {}),
    "values": (range(COUNT), "SET {0} x", {}),
    "commands": ([*commands(COUNT)], None, {}),
    "several commands": (ROWS, [HSET, "SADD users {id}"], {}),
    "no rows": ([], HSET, {}),
    "collect": (ROWS, HSET, {"on_error": "collect"}),
    "nulls are skipped": (ROWS, "SET user:{id} {city}", {"nulls": "skip"}),
    "nulls are empty": (ROWS, HSET, {"nulls": "empty"}),
    "nulls are deleted": (ROWS, HSET, {"nulls": "delete"}),
    "null": (ROWS, "SET user:{id} {city}", {}),
    "missing field": (ROWS, "SET user:{id} {street}", {}),
    "bad value": ([*TUPLES[:2000], (1, object())], RPUSH, {}),
    "bad row": ([*TUPLES[:2000], 5.5], RPUSH, {}),
    "default": ([(i, {i}) for i in range(COUNT)], "SET {0} {1}", {"default": str}),
    "merge": (TUPLES, RPUSH, {"mode": "merge", "on_error": "collect"}),
    "serialize": (ROWS, HSET, {"mode": "serialize"}),
    "serialize lists": (TUPLES, RPUSH, {"mode": "serialize", "on_error": "collect"}),
    "connections": (TUPLES, RPUSH, {"connections": 3, "on_error": "collect"}),
    "merge, connections": (
        TUPLES, RPUSH, {"mode": "merge", "connections": 3, "on_error": "collect"}
    ),
    "retry": (ROWS, HSET, {"retry": "idempotent", "on_error": "collect"}),
    "rate": (ROWS, HSET, {"rate_limit": 10_000, "on_error": "collect"}),
    "checkpoint": (ROWS, HSET, {"checkpoint": JOB, "on_error": "collect"}),
    "transactions": (TUPLES, RPUSH, {"checkpoint": JOB, "on_error": "collect"}),
    "transactions, connections": (
        TUPLES, RPUSH,
        {"checkpoint": JOB, "on_error": "collect", "connections": 2},
    ),
    "redis-cli": (TUPLES, RPUSH, {"transport": "redis-cli", "on_error": "collect"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_same_as_mass_insert(server: LocalServer, client: redis.Redis, case: str) -> None:
    """The same rows have the same result: keys, report, errors with their rows, and exception."""
    rows, template, options = CASES[case]
    # Where chunks end depends on time, and so does which commands are merged.
    without = SIZES if "mode" in options or "checkpoint" in options else set()
    loads = insert, push, push_in_asyncio
    expected, *found = (
        outcome(load, client, without, rows, template, server=server.url, **options)
        for load in (loads[:2] if case == "redis-cli" else loads)
    )
    assert all(each == expected for each in found)


def test_same_messages(server: LocalServer) -> None:
    """The exception of a row names it, and has the same report and notes."""
    found, value = [], object()
    for load in (insert, push):
        with pytest.raises(fastresp.EncodeError) as caught:
            load([(1, 2), (3, value)], "SET user:{0} {1}", server=server.url)
        notes = [note.partition(" in ")[0] for note in caught.value.__notes__]
        found.append((str(caught.value), caught.value.row, caught.value.command, notes))
    assert found[0] == found[1]
    assert "row 1 ({0}=3), command 1, field 1, argument 2" in found[1][0]


def test_same_rejects_and_progress(
    server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    client.set("list:7", "not a list")
    files = []
    for load in (insert, push):
        seen: list[int] = []
        path = tmp_path / load.__name__
        load(
            TUPLES, RPUSH, server=server.url, on_error="collect", rejects=path,
            progress=lambda report, seen=seen: seen.append(report.rows),
        )  # fmt: skip
        assert seen[-1] == COUNT
        files.append(path.read_text())
    assert files[0] == files[1]
    assert files[0].count("\n") == COUNT // 50


def test_same_options() -> None:
    """``loader`` has the parameters of ``mass_insert``, except ``data`` and ``mirror``."""
    here, there = (
        [(each.name, each.kind, each.default) for each in inspect.signature(f).parameters.values()]
        for f in (fastresp.loader, fastresp.mass_insert)
    )
    assert here == [each for each in there if each[0] not in ("data", "mirror")]
    assert inspect.signature(fastresp.loader).return_annotation == "Loader"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((), {"retries": 1}, TypeError, "loader() got an unexpected keyword argument 'retries'"),
        (("", "", ""), {}, TypeError, "loader() takes from 0 to 2 positional arguments but 3"),
        (
            (),
            {"connections": 0},
            ValueError,
            "connections must be a whole number from 1 to 64, not 0",
        ),
        (("SET {0",), {}, fastresp.TemplateError, "SET {0"),
        ((), {"data": []}, TypeError, "loader() got an unexpected keyword argument 'data'"),
    ],
)
def test_wrong_options(
    arguments: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        fastresp.loader(*arguments, **options)
    assert message in str(caught.value)


def test_row_that_is_changed_later(server: LocalServer, client: redis.Redis) -> None:
    """A row is encoded at once, so one dict can serve for all."""
    row: dict[str, Any] = {}
    with fastresp.loader(HSET, server.url) as load:
        for number in range(100):
            row["id"] = row["name"] = number
            load.write(row)
    assert [client.hget(f"user:{i}", "name") for i in range(100)] == [b"%d" % i for i in range(100)]


def test_caught_error_of_a_row(
    open_loader: Callable[..., Any], server: LocalServer, client: redis.Redis
) -> None:
    """The row is not written, and the load continues."""
    with open_loader("SET {0} {1}", server.url) as load:
        for number in range(100):
            if number % 10 != 3:
                load.write((number, VALUE))
                continue
            with pytest.raises(fastresp.EncodeError) as caught:
                load.write((number, object()))
            assert caught.value.row == number - number // 10
    report = load.report
    assert (report.rows, report.commands, report.replies) == (90, 90, 90)
    assert client.dbsize() == 90


def test_slow_rows_are_sent_at_once(server: LocalServer, client: redis.Redis) -> None:
    with fastresp.loader("SET {0} x", server.url) as load:
        for number in range(5):
            time.sleep(0.005)
            load.write(number)
            deadline = time.monotonic() + 30
            while client.dbsize() <= number:
                assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"connections": 3},
        {"mode": "merge"},
        {"retry": "idempotent"},
        {"checkpoint": JOB, "connections": 2},
    ],
    ids=str,
)
def test_flush(
    open_loader: Callable[..., Any],
    server: LocalServer,
    client: redis.Redis,
    options: dict[str, Any],
) -> None:
    """All rows so far are in the server, and counted. The load continues, also after a pause."""
    with open_loader("RPUSH list:{0} {1}", server.url, timeout=0.5, **options) as load:
        load.flush()
        for end in range(1000, 4000, 1000):
            for number in range(end - 1000, end):
                load.write((number % 10, number))
            load.flush()
            report = load.report
            assert (report.rows, report.replies, report.in_doubt, report.unsent) == (end, end, 0, 0)
            assert sum(client.llen(f"list:{i}") for i in range(10)) == end
            time.sleep(0.6 * (end == 1000))  # longer than the timeout
        load.flush()
    assert load.report.rows == 3000
    assert client.lrange("list:7", 0, -1) == [b"%d" % i for i in range(7, 3000, 10)]


def test_flush_of_unfinished_keys(server: LocalServer, client: redis.Redis) -> None:
    """The last key may get more rows, so it is not created yet."""
    with fastresp.loader(RPUSH, server.url, mode="serialize") as load:
        for row in (("a", 1), ("a", 2), ("b", 1)):
            load.write(row)
        load.flush()
        assert client.keys() == [b"list:a"]
        load.write(("b", 2))
    assert client.lrange("list:b", 0, -1) == [b"1", b"2"]


def test_flush_with_redis_cli(server: LocalServer, client: redis.Redis) -> None:
    with fastresp.loader("SET {0} x", server.url, transport="redis-cli") as load:
        load.write(1)
        with pytest.raises(ValueError, match=r"wait for replies .* transport='socket'"):
            load.flush()
        load.write(2)
    assert client.dbsize() == 2


def test_pause_longer_than_the_timeout(server: LocalServer) -> None:
    with fastresp.loader("SET {0} x", server.url, timeout=0.3) as load:
        for number in range(10):
            load.write(number)
        time.sleep(0.5)
        load.write(10)
        time.sleep(0.5)
    assert load.report.replies == 11


# Errors and exceptions.


def test_errors_at_the_end_of_the_block(server: LocalServer, client: redis.Redis) -> None:
    client.set("list:1", "text")
    with pytest.raises(fastresp.LoadErrors) as caught, fastresp.loader(RPUSH, server.url) as load:
        for row in TUPLES:
            load.write(row)
        written = True
    assert written
    assert caught.value.report is load.report
    assert (load.report.rows, load.report.failed) == (COUNT, COUNT // 50)


def test_stopped_load_does_not_accept_rows(server: LocalServer, client: redis.Redis) -> None:
    """A write raises; a later one, too, if that is ignored."""
    client.set("list", "text")
    with (
        pytest.raises(fastresp.LoadErrors) as caught,
        fastresp.loader("RPUSH list {0}", server.url, on_error="stop") as load,
    ):
        with pytest.raises(fastresp.LoadErrors) as first:
            for number in range(10**9):
                load.write(number)
        for call in (lambda: load.write(0), load.flush):
            with pytest.raises(ValueError, match="the load has ended"):
                call()
    assert caught.value is first.value
    report = load.report
    assert report.stopped
    assert report.rows + report.unsent >= report.replies == report.failed > 0


def test_stopped_load_that_only_collects(server: LocalServer, client: redis.Redis) -> None:
    """``mass_insert`` reads no more rows and returns. A write must not drop its row."""
    client.set("list", "text")
    options: dict[str, Any] = {"on_error": "collect", "max_errors": 5}
    with (
        fastresp.loader("RPUSH list {0}", server.url, **options) as load,
        pytest.raises(fastresp.LoadErrors, match="this row was not written"),
    ):
        for number in range(10**9):
            load.write(number)
    assert load.report.stopped
    assert load.report.failed > 5


class Failed(Exception):
    """Raised in a block."""


# Exceptions that no generator can raise.
STOPS = (StopIteration, StopAsyncIteration)


@pytest.mark.parametrize("kind", [Failed, KeyboardInterrupt, SystemExit, *STOPS])
@pytest.mark.parametrize("options", [{}, {"mode": "merge"}, {"connections": 2}], ids=str)
def test_exception_in_the_block(
    open_loader: Callable[..., Any],
    server: LocalServer,
    client: redis.Redis,
    kind: type[BaseException],
    options: dict[str, Any],
) -> None:
    """It propagates with the report, and all earlier rows are loaded."""
    error = kind("of the block")
    with pytest.raises(kind) as caught, open_loader("SET {0} x", server.url, **options) as load:
        for number in range(100):
            load.write(number)
        raise error
    assert caught.value is error
    assert [entry.name for entry in caught.traceback] == ["test_exception_in_the_block"]
    report = load.report
    assert (report.rows, report.replies, client.dbsize()) == (100, 100, 100)
    if kind not in STOPS:
        assert error.report is report  # type: ignore[attr-defined]
        assert "100 commands" in error.__notes__[0]
    with pytest.raises(ValueError, match="the load has ended; open another loader"):
        load.write(1)


def test_generator_that_is_closed_in_the_block(server: LocalServer, client: redis.Redis) -> None:
    def loading() -> Iterator[None]:
        with fastresp.loader("SET {0} x", server.url) as load:
            load.write(1)
            yield

    generator = loading()
    next(generator)
    generator.close()
    assert client.dbsize() == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.3])
def test_ctrl_c(server: LocalServer, client: redis.Redis, after_s: float) -> None:
    """At any time in the block: all rows that were written are in the server."""
    in_the_background(lambda: os.kill(os.getpid(), signal.SIGINT), after_s)()
    with pytest.raises(KeyboardInterrupt) as caught, fastresp.loader(None, server.url) as load:
        for command in commands(10**9):
            load.write(command)
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert report is load.report
    assert report.in_doubt == report.unsent == 0
    assert whole_prefix(client) == report.acknowledged == report.rows > 0


def test_lost_server(
    open_loader: Callable[..., Any], start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()
    with (
        pytest.raises(fastresp.TransportError) as caught,
        open_loader(None, server.url) as load,
    ):
        for number, command in enumerate(commands(10**9)):
            load.write(command)
            if number == 5_000:
                server.process.kill()
    report = caught.value.report
    assert report is load.report is not None
    assert report.acknowledged + report.in_doubt + report.unsent >= 5_000 - 1
    with pytest.raises(ValueError, match="the load has ended"):
        load.write(("SET", "a", 1))


def test_lost_server_at_the_end(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    with (
        pytest.raises(fastresp.TransportError) as caught,
        fastresp.loader("SET {0} x", server.url) as load,
    ):
        load.write(1)
        server.process.kill()
    assert caught.value.report is not None
    assert load.report.acknowledged == 0


def test_server_that_cannot_be_used(port: int) -> None:
    load = fastresp.loader("SET {0} x", f"redis://127.0.0.1:{port}")
    with pytest.raises(fastresp.TransportError, match="refused"):
        load.__enter__()
    with pytest.raises(ValueError, match="the load has ended"):
        load.write(1)
    with pytest.raises(ValueError, match="used only once"):
        load.__enter__()


def test_memory_is_bounded(start_server: Callable[..., LocalServer]) -> None:
    """A server that stops answering stops the writer, before much is encoded."""
    server = start_server()
    written = 0
    with (
        pytest.raises(fastresp.TransportTimeout),
        fastresp.loader("SET {0} {1}", server.url, timeout=1.0) as load,
    ):
        load.write((0, ""))
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            for written in range(1, 10_000):
                load.write((written, "x" * 100_000))
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
    assert 10 < written < 160
    assert load.report.rows + load.report.unsent <= written + 1


# The life of a loader.


def test_only_in_its_block(open_loader: Callable[..., Any], server: LocalServer) -> None:
    load = open_loader("SET {0} x", server.url)
    assert load.report.rows == 0
    for call in (lambda: load.write(1), load.flush):
        with pytest.raises(ValueError, match="use the loader in a 'with' statement"):
            call()
    with load:
        load.write(1)
        with pytest.raises(ValueError, match="used only once"):
            load.__enter__()
    for call in (lambda: load.write(1), load.flush):
        with pytest.raises(ValueError, match="the load has ended; open another loader"):
            call()
    with pytest.raises(ValueError, match="used only once"), load:
        pass
    assert load.report.rows == 1


def test_another_thread(server: LocalServer, client: redis.Redis) -> None:
    """Threads may write in turn. While one waits for the server, the others get an error."""
    entered, left = threading.Event(), threading.Event()

    def progress(report: fastresp.Report) -> None:
        if threading.current_thread() is thread:
            entered.set()
            left.wait(30)

    def write() -> None:
        load.write(2)
        load.flush()

    thread = threading.Thread(target=write)
    with fastresp.loader("SET {0} x", server.url, progress=progress) as load:
        load.write(1)
        load.flush()
        thread.start()
        assert entered.wait(30)
        for call in (lambda: load.write(3), load.flush):
            with pytest.raises(ValueError, match="another thread is using the loader"):
                call()
        left.set()
        thread.join()
        load.write(4)
    assert sorted(client.keys()) == [b"1", b"2", b"4"]


def test_callback_cannot_write(server: LocalServer, client: redis.Redis) -> None:
    """It would write during a write."""

    def progress(report: fastresp.Report) -> None:
        load.write(2)

    with (
        pytest.raises(ValueError, match="or a function that the loader has called"),
        fastresp.loader("SET {0} x", server.url, progress=progress) as load,
    ):
        load.write(1)
    assert client.keys() == [b"1"]


def connections(client: redis.Redis) -> int:
    """Return how many other clients the server has, once they have gone."""
    deadline = time.monotonic() + 30
    while len(client.client_list()) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(client.client_list()) - 1


def test_dropped_loader(server: LocalServer, client: redis.Redis) -> None:
    """Its connection is closed at once; a warning says that rows may be lost."""
    load = fastresp.loader("SET {0} x", server.url)
    load.__enter__()
    load.write(1)
    load.flush()
    load.write(2)
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="a loader was not closed, so rows may be lost"):
            del load
        assert connections(client) == 0
    finally:
        gc.enable()
    assert client.keys() == [b"1"]


AT_EXIT = """
import sys, fastresp
load = fastresp.loader("SET {0} x", sys.argv[1])
load.__enter__()
load.write(1)
load.flush()
load.write(2)
"""


def test_program_that_ends_with_an_open_loader(server: LocalServer, client: redis.Redis) -> None:
    """It ends at once, with the same warning."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", AT_EXIT, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "ResourceWarning: a loader was not closed" in done.stderr
    assert "Traceback" not in done.stderr
    assert client.keys() == [b"1"]


# Checkpoints.


@pytest.mark.parametrize("template", ["INCR n:{0}", "SET n:{0} 1"])
def test_resume(server: LocalServer, client: redis.Redis, template: str) -> None:
    """All rows are written again, and those loaded before are skipped."""
    with pytest.raises(Failed), fastresp.loader(template, server.url, checkpoint=JOB) as load:
        for number in range(5000):
            load.write(number)
        load.flush()
        raise Failed
    report = push(range(COUNT * 3), template, server=server.url, checkpoint=AGAIN)
    assert report.resumed_at == 5000
    assert report.commands == COUNT * 3 - 5000
    assert {client.get(f"n:{number}") for number in range(COUNT * 3)} == {b"1"}
    # All rows were loaded, so none is loaded again.
    report = push(range(COUNT * 3), template, server=server.url, checkpoint=AGAIN)
    assert report.ended_before
    assert report.commands == 0
    with fastresp.loader(template, server.url, checkpoint=AGAIN) as load:
        load.write(0)
        load.flush()
    with pytest.raises(ValueError, match="the load has ended"):
        load.write(0)


def test_resume_with_fewer_rows(server: LocalServer) -> None:
    errors = []
    for load in (insert, push):
        job = fastresp.Checkpoint(load.__name__, source_id="1")
        with pytest.raises(fastresp.EncodeError):
            load([*range(100), object()], "INCR n:{0}", server=server.url, checkpoint=job)
        with pytest.raises(fastresp.CheckpointError) as caught:
            again = replace(job, resume=True)
            load(range(50), "INCR n:{0}", server=server.url, checkpoint=again)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "the source has fewer than 100 rows" in errors[0]


def test_checkpoint_needs_an_id(server: LocalServer) -> None:
    load = fastresp.loader("INCR n:{0}", server.url, checkpoint="job")
    with pytest.raises(fastresp.CheckpointError, match=r"written rows .* source_id="):
        load.__enter__()
