"""Columns are released on every path: at the end, after errors, interruptions, in threads."""

from __future__ import annotations

import asyncio
import gc
import io
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import preloaded
import pyarrow as pa
import pyarrow.dataset
import pytest
import redis
from columns import Counted, batches

import fastresp
import fastresp.aio
from fastresp import EncodeError, SourceError, TemplateError, TransportError
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter
from fastresp.server.local_server import LocalServer


def assert_released(source: Counted) -> None:
    """Check that everything is released immediately, not by a later garbage collection."""
    assert source.streams == source.streams_released == 1
    assert source.open == 0


def wait_until_released(source: Counted) -> None:
    """Wait, since in asyncio the thread of the last batch may keep it longer than the loop."""
    deadline = time.monotonic() + 20
    while source.open and time.monotonic() < deadline:
        # On each try: objects of the thread may be in a cycle with its exception.
        gc.collect()
        time.sleep(0.01)
    assert source.open == 0


def mass_insert(source: Any, url: str, **options: Any) -> Any:
    return fastresp.mass_insert(source, "SET {id} {v}", server=url, **options)


def by_socket(source: Any, url: str, **options: Any) -> Any:
    return mass_insert(source, url, transport="socket", **options)


def execute(source: Any, url: str) -> Any:
    return list(fastresp.iter_replies(source, "SET {id} {v}", server=url))


def by_aio(source: Any, url: str) -> Any:
    return asyncio.run(fastresp.aio.mass_insert(source, "SET {id} {v}", server=url))


def execute_by_aio(source: Any, url: str) -> Any:
    async def replies() -> list[Any]:
        found = fastresp.aio.iter_replies(source, "SET {id} {v}", server=url)
        return [reply async for reply in found]

    return asyncio.run(replies())


def dump(source: Any, url: str) -> Any:
    return fastresp.dump(source, "SET {id} {v}", io.BytesIO())


LOADS = [mass_insert, by_socket, execute, by_aio, execute_by_aio]


@pytest.mark.parametrize("load", [*LOADS, dump])
def test_released_at_the_end(load: Any, server: LocalServer) -> None:
    source = Counted(batches())
    load(source, server.url)
    assert source.given == 3
    assert_released(source)


def test_bad_template() -> None:
    for template in ("SET {nothing} 1", "SET {*id} 1", "SET {id!f32} 1"):
        source = Counted(batches())
        with pytest.raises(TemplateError):
            fastresp.dump(source, template, io.BytesIO())
        assert (source.given, source.streams_released) == (0, 1)
        wait_until_released(source)
    source = Counted(batches())
    with pytest.raises(TemplateError):
        fastresp.dump(source, "SET {id", io.BytesIO())
    with pytest.raises(ValueError, match="nulls must be"):
        fastresp.dump(source, "SET {id} 1", io.BytesIO(), nulls="no")  # type: ignore[arg-type]
    wait_until_released(source)


@pytest.mark.parametrize("load", [*LOADS, dump])
def test_value_that_cannot_be_sent(load: Any, server: LocalServer, client: redis.Redis) -> None:
    """Earlier rows are loaded; the batch is released immediately though the traceback is kept."""
    parts = batches(3)
    parts.insert(2, pa.record_batch({"id": pa.array([8, None]), "v": ["a", "b"]}))
    source = Counted(parts)
    with pytest.raises(EncodeError, match=r"row 5, command 5, column 'id'.*null") as caught:
        load(source, server.url)
    if load is not dump:
        assert caught.value.report.replies == 5  # type: ignore[attr-defined]
        assert sorted(client.scan_iter()) == [b"0", b"1", b"2", b"3", b"8"]
    assert source.given == 3
    assert_released(source)


@pytest.mark.parametrize("fail_at", [-1, 0, 2])
@pytest.mark.parametrize("load", LOADS)
def test_source_that_fails(
    load: Any, fail_at: int, server: LocalServer, client: redis.Redis
) -> None:
    source = Counted(batches(), fail_at)
    with pytest.raises(SourceError, match="source of the columns failed: the disk is \ufffd full"):
        load(source, server.url)
    assert client.dbsize() == max(0, 2 * fail_at)
    assert_released(source)


@pytest.mark.parametrize("load", LOADS)
def test_no_server(load: Any, port: int) -> None:
    source = Counted(batches())
    with pytest.raises(TransportError):
        load(source, f"redis://127.0.0.1:{port}")
    assert (source.given, source.open) == (0, 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("load", LOADS)
def test_server_killed_during_a_load(load: Any, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    def kill(index: int) -> None:
        if index == 20:
            server.process.kill()

    source = Counted(batches(200, 1000), on_batch=kill)
    with pytest.raises(TransportError):
        load(source, server.url)
    assert source.streams_released == 1
    wait_until_released(source)


@pytest.mark.parametrize("load", [mass_insert, by_socket])
def test_interrupted_by_progress(load: Any, server: LocalServer) -> None:
    """A KeyboardInterrupt arrives between two chunks."""

    def interrupt(report: fastresp.Report) -> None:
        raise KeyboardInterrupt

    source = Counted(batches(100, 5000))
    with pytest.raises(KeyboardInterrupt):
        load(source, server.url, progress=interrupt)
    assert source.streams_released == 1
    wait_until_released(source)


CTRL_C = """
import sys, duckdb, fastresp
data = duckdb.sql("select range id, 'x' v from range(100000000000)")
try:
    fastresp.mass_insert(
        data, "SET {id} {v}", server=sys.argv[1], transport=sys.argv[2],
        progress=lambda report: print(report.commands, flush=True),
    )
except KeyboardInterrupt as error:
    print("interrupted", error.report.commands > 0, flush=True)
"""


@pytest.mark.parametrize("transport", ["redis-cli", "socket"])
def test_ctrl_c(transport: str, server: LocalServer) -> None:
    child = preloaded.Popen(
        [sys.executable, "-c", CTRL_C, server.url, transport],
        stdout=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert child.stdout is not None
    while int(child.stdout.readline()) < 100_000:
        pass
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    assert output.splitlines()[-1] == "interrupted True"


def test_ctrl_c_while_all_rows_are_left_out() -> None:
    code = (
        "import duckdb, fastresp\n"
        # Imports may swallow a Ctrl-C; this runs them all in advance.
        "fastresp.dump(duckdb.sql('select 1 v'), 'GET {v}', '/dev/null')\n"
        "data = duckdb.sql('select null::int v from range(100000000000)')\n"
        "print(1, flush=True)\n"
        "fastresp.dump(data, 'GET {v}', '/dev/null', nulls='skip')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.few(2)
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2])
def test_cancelled(after_s: float, server: LocalServer, client: redis.Redis) -> None:
    """Cancel between batches, and while a thread waits for the next batch."""
    waits = threading.Event()

    def pause(index: int) -> None:
        if index == 5:
            waits.set()
            time.sleep(1.0)

    async def cancelled() -> None:
        task = asyncio.create_task(
            fastresp.aio.mass_insert(source, "SET {id} {v}", server=server.url)
        )
        await asyncio.sleep(after_s)
        while after_s == 0.2 and not waits.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    source = Counted(batches(10, 10), on_batch=pause)
    asyncio.run(cancelled())
    wait_until_released(source)
    if after_s == 0.2:
        assert source.given < 10


def test_aio_does_not_block_for_a_batch(server: LocalServer) -> None:
    """Each batch arrives only after other tasks have run a few times."""
    turns = 0

    async def clock() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    def wait_for_turns(index: int) -> None:
        until, deadline = turns + 10, time.monotonic() + 30
        while turns < until:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    async def main() -> fastresp.Report:
        ticking = asyncio.create_task(clock())
        source = Counted(batches(2), on_batch=wait_for_turns)
        report = await fastresp.aio.mass_insert(source, "SET {id} {v}", server=server.url)
        ticking.cancel()
        return report

    report = asyncio.run(main())
    assert report.replies == report.rows > 0


def test_batches_are_sent_before_a_slow_one(server: LocalServer, client: redis.Redis) -> None:
    seen = []

    # The first slow batch only shows that the source is slow.
    def pause(index: int) -> None:
        if index:
            time.sleep(0.3)
        if index == 3:
            deadline = time.monotonic() + 30
            while client.dbsize() < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(client.dbsize())

    source = Counted(batches(4), on_batch=pause)
    fastresp.mass_insert(source, "SET {id} {v}", server=server.url, transport="socket")
    assert seen[-1] >= 4


def test_execute_is_closed_early(server: LocalServer) -> None:
    source = Counted(batches(100, 1000))
    replies = fastresp.iter_replies(source, "SET {id} {v}", server=server.url)
    assert source.given == 0
    assert next(replies) == b"OK"
    replies.close()  # type: ignore[attr-defined]
    assert_released(source)
    assert source.given < 100

    source = Counted(batches(3))
    replies = fastresp.iter_replies(source, "SET {id} {v}", server=server.url)
    del replies
    assert_released(source)

    async def leave() -> None:
        found = fastresp.aio.iter_replies(source, "SET {id} {v}", server=server.url)
        async with aclosing(found) as replies:  # type: ignore[type-var]
            assert await anext(replies) == b"OK"

    source = Counted(batches(100, 1000))
    asyncio.run(leave())
    assert_released(source)


def test_chunks_are_closed_early() -> None:
    source = Counted(batches(100, 1000))
    stream = ArrowStream(source)
    chunks = ColumnWriter(fastresp.Template("SET {id} {v}"), stream, chunk_bytes=100).chunks(stream)
    next(chunks)
    del stream, chunks
    assert_released(source)


def test_stream_is_released_after_a_batch_read_in_another_thread() -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait(index: int) -> None:
        began.set()
        go_on.wait(60)
        assert source.streams_released == 0

    source = Counted(batches(), on_batch=wait)
    stream = ArrowStream(source)
    writer = ColumnWriter(fastresp.Template("SET {id} {v}"), stream)
    thread = threading.Thread(target=writer.fill, args=(stream,))
    thread.start()
    began.wait(60)
    stream.release_columns()
    assert source.streams_released == 0
    go_on.set()
    thread.join(60)
    assert source.streams_released == 1
    assert not writer.fill(stream)
    del writer, stream
    wait_until_released(source)
