"""Search indexes during a load: the report, ``wait_index``, and ``index_backlog``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from command_line import PROGRAM, invoke
from local_cluster import LocalCluster
from module_server import module_options
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.cli.exit_codes import Exit
from fastresp.outcome.report import IndexState
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, Misbehaving

pytestmark = pytest.mark.few(2)
Insert = Callable[..., fastresp.Report]
TEMPLATE = "HSET doc:{0} n {1} words {2}"
# Their scan takes half a second, so that it is still running when a load starts.
MANY = 12_000
WORDS = " ".join(f"word{number}" for number in range(60))


def rows(count: int, first: int = 0) -> Iterator[tuple[int, int, str]]:
    return ((number, number, WORDS) for number in range(first, first + count))


def call(client: redis.Redis, *words: str) -> Any:
    """Run a command without redis-py's parsing of its reply."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


def create(
    client: redis.Redis, name: str = "docs", prefix: str = "doc:", kind: str = "HASH"
) -> None:
    """Create an index over numbers and words."""
    path = "$." if kind == "JSON" else ""
    schema = f"SCHEMA {path}n AS n NUMERIC {path}words AS words TEXT"
    call(client, *f"FT.CREATE {name} ON {kind} PREFIX 1 {prefix} {schema}".split())


def info(client: redis.Redis, name: str = "docs") -> dict[str, Any]:
    reply = call(client, "FT.INFO", name)
    return dict(zip(map(bytes.decode, reply[::2]), reply[1::2], strict=True))


@pytest.fixture
def client(module_server: LocalServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(module_server.url, protocol=2) as client:
        yield client


@pytest.fixture
def scanning(client: redis.Redis, module_server: LocalServer) -> redis.Redis:
    """A server that has just started to scan many keys for an index."""
    fastresp.mass_insert(rows(MANY), TEMPLATE, server=module_server.url, transport="socket")
    create(client)
    return client


@pytest.fixture
def scanning_for_ever(
    client: redis.Redis, module_server: LocalServer, tmp_path: Path
) -> Iterator[str]:
    """The URL of a server that claims to scan for an index without progress."""
    create(client)

    def scans(connection: Connection, command: list[bytes], reply: bytes) -> bytes:
        return reply.replace(b"indexing\r\n:0\r\n", b"indexing\r\n:1\r\n")

    with Misbehaving(scans, module_server.url, listen=tmp_path / "scanning") as server:
        yield server.url


def calls(client: redis.Redis) -> dict[str, int]:
    """Return how many times the server has run each command of the search module."""
    stats: Any = client.info("commandstats")
    names = {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}
    return {name: count for name, count in names.items() if name.upper().startswith("FT.")}


def test_report(insert_singly: Insert, client: redis.Redis, module_server: LocalServer) -> None:
    """It counts the failures of this load, for the indexes that cover its keys."""
    create(client)
    create(client, "shorter", "do")
    create(client, "other", "user:")
    create(client, "json", "doc:", kind="JSON")
    client.hset("doc:before", "n", "no number")
    data = [(1, 1, "a"), (2, "two", "b"), (3, "three", "c")]
    report = insert_singly(data, TEMPLATE, server=module_server.url)
    by_name = {index.name: index for index in report.indexes}
    assert set(by_name) == {"docs", "shorter"}
    docs = by_name["docs"]
    assert (docs.documents, docs.waiting, docs.failures) == (1, 0, 2)
    assert docs.last_error_key == "doc:3"
    assert "'three'" in docs.last_error
    assert str(docs) in str(report).splitlines()
    assert "1 document, up to date, 2 indexing failures (the last for doc:3: " in str(report)


def test_json_documents(client: redis.Redis, module_server: LocalServer) -> None:
    create(client, "json", "doc:", kind="JSON")
    create(client, "hashes", "doc:")
    data = [{"id": 1, "n": 1}, {"id": 2, "n": "two"}]
    report = fastresp.mass_insert(data, "JSON.SET doc:{id} $ {*!json}", server=module_server.url)
    [index] = report.indexes
    assert (index.name, index.documents, index.failures) == ("json", 1, 1)


def test_serialised(client: redis.Redis, module_server: LocalServer) -> None:
    create(client)
    report = fastresp.mass_insert(
        rows(100), TEMPLATE, server=module_server.url, mode="serialize", wait_index=True
    )
    assert report.indexes == [IndexState("docs", 100)]


def test_report_has_the_backlog(scanning: redis.Redis, module_server: LocalServer) -> None:
    """RediSearch scans in the background; the report has the remaining documents."""
    report = fastresp.mass_insert(rows(10, MANY), TEMPLATE, server=module_server.url)
    [index] = report.indexes
    assert index.documents < MANY
    assert 0 < index.waiting <= MANY
    assert f"about {index.waiting:,} not indexed yet" in str(report)
    assert report.index_waiting == index.waiting


@pytest.mark.few(1)
def test_wait_index_waits_for_the_scan(
    insert_singly: Insert, scanning: redis.Redis, module_server: LocalServer
) -> None:
    seen = []
    report = insert_singly(
        rows(10, MANY), TEMPLATE, server=module_server.url, wait_index=True,
        progress=lambda report: seen.append(report.index_waiting),
    )  # fmt: skip
    assert max(seen) > 0
    assert report.indexes == [IndexState("docs", MANY + 10)]
    said = info(scanning)
    assert (int(said["num_docs"]), int(said["indexing"])) == (MANY + 10, 0)


@pytest.mark.few(1)
def test_backlog(insert_singly: Insert, scanning: redis.Redis, module_server: LocalServer) -> None:
    """Nothing is sent while the backlog exceeds the limit."""
    seen = []
    report = insert_singly(
        rows(5000, MANY), TEMPLATE, server=module_server.url, index_backlog=1000,
        progress=lambda report: seen.append((report.commands, report.index_waiting)),
    )  # fmt: skip
    assert seen[0][0] == 0
    assert seen[0][1] > 1000
    assert all(waiting <= 1000 for commands, waiting in seen if commands)
    assert report.replies == 5000
    # So it did not run during the scan.
    assert int(info(scanning)["num_docs"]) > MANY


@pytest.mark.few(1)
def test_backlog_of_an_async_source(scanning: redis.Redis, module_server: LocalServer) -> None:
    """Rows before a pause of the source are also held back."""
    url = module_server.url
    sent = []

    async def source() -> Any:
        for row in rows(20, MANY):
            yield row
        for _ in range(3):
            await asyncio.sleep(0.05)
            sent.append((scanning.exists(f"doc:{MANY}"), int(info(scanning)["indexing"])))

    loading = fastresp.aio.mass_insert(source(), TEMPLATE, server=url, index_backlog=20)
    assert asyncio.run(loading).replies == 20
    assert sent[0] == (0, 1)


@pytest.mark.few(0)
@pytest.mark.parametrize("most", [1, 100_000])
def test_small_and_large_backlog(
    most: int, insert_singly: Insert, client: redis.Redis, module_server: LocalServer
) -> None:
    """If the server indexes writes immediately, each load ends, and nothing is lost."""
    create(client)
    count = 2000 if most == 1 else 50_000
    report = insert_singly(
        ((number, number, "a b") for number in range(count)), TEMPLATE,
        server=module_server.url, index_backlog=most,
    )  # fmt: skip
    assert report.indexes == [IndexState("docs", count)]


def test_backlog_with_checkpoint(client: redis.Redis, module_server: LocalServer) -> None:
    create(client)
    report = fastresp.mass_insert(
        list(rows(3000)), TEMPLATE, server=module_server.url, index_backlog=500, checkpoint="c"
    )
    assert report.indexes == [IndexState("docs", 3000)]


def test_stopped_load_does_not_wait(scanning: redis.Redis, module_server: LocalServer) -> None:
    scanning.set(f"doc:{MANY}", "a string")
    with pytest.raises(fastresp.LoadErrors) as caught:
        fastresp.mass_insert(
            rows(10, MANY), TEMPLATE, server=module_server.url, wait_index=True, on_error="stop",
            transport="socket",
        )  # fmt: skip
    assert caught.value.report.stopped
    assert caught.value.report.index_waiting > 0


def test_metrics(scanning: redis.Redis, module_server: LocalServer) -> None:
    texts: list[str] = []
    fastresp.mass_insert(
        [(MANY, "no number", "")], TEMPLATE, server=module_server.url, metrics=texts.append
    )
    found = dict(re.findall(r'^fastresp_index_(\w+){index="docs"} (\S+)$', texts[-1], re.M))
    assert float(found["waiting_documents"]) > 0
    assert float(found["failures"]) in (1, 2)  # the scan may try the same document again


@pytest.mark.parametrize("indexes", [0, 1])
def test_only_servers_with_indexes_get_more_questions(
    indexes: int, client: redis.Redis, module_server: LocalServer
) -> None:
    """A server with Search is asked for its indexes, and only if it has some, for their state."""
    if indexes:
        create(client)
    client.config_resetstat()
    fastresp.mass_insert(rows(10), TEMPLATE, server=module_server.url, transport="socket")
    asked = {name.upper(): count for name, count in calls(client).items()}
    assert asked == ({"FT._LIST": 3, "FT.INFO": 2} if indexes else {"FT._LIST": 1})


def test_server_without_search_is_not_asked(server: LocalServer) -> None:
    """A server without Search is asked nothing, over no more connections."""
    with redis.Redis.from_url(server.url) as client:
        client.ping()
        client.config_resetstat()
        report = fastresp.mass_insert(rows(10), TEMPLATE, server=server.url, transport="socket")
        after: Any = client.info("commandstats")
        connections: Any = client.info("stats")
    assert report.indexes == []
    assert connections["total_connections_received"] == 1
    assert not [name for name in after if "ft." in name.lower()]


def test_without_permission(client: redis.Redis, module_server: LocalServer) -> None:
    """Without permission for the questions, only loads with the options fail."""
    create(client)
    client.execute_command("ACL", "SETUSER", "some", "on", ">p", "~*", "+@all", "-ft.info")
    client.execute_command("ACL", "SETUSER", "none", "on", ">p", "~*", "+@all", "-ft._list")
    for user in ("some", "none"):
        url = module_server.url.replace("unix://", f"unix://{user}:p@")
        assert fastresp.mass_insert(rows(3), TEMPLATE, server=url).indexes == []
        for options in ({"wait_index": True}, {"index_backlog": 10}):
            with pytest.raises(fastresp.TransportError, match=r"permission for FT\._LIST and"):
                fastresp.mass_insert(rows(3, 10), TEMPLATE, server=url, **options)  # type: ignore[arg-type]
    assert client.dbsize() == 3


def test_no_index(client: redis.Redis, module_server: LocalServer, server: LocalServer) -> None:
    create(client, "users", "user:")
    url = module_server.url
    with pytest.raises(fastresp.TransportError, match=r"covers the keys.*the indexes are users"):
        fastresp.mass_insert(rows(3), TEMPLATE, server=url, wait_index=True)
    with pytest.raises(fastresp.TransportError, match="needs a server with search indexes"):
        fastresp.mass_insert(rows(3), TEMPLATE, server=server.url, wait_index=True)
    assert client.dbsize() == 0


def test_commands_without_a_template(client: redis.Redis, module_server: LocalServer) -> None:
    """Their keys are unknown: the options wait for all indexes; without them, none is reported."""
    create(client)
    data = [("HSET", "doc:1", "n", 1)]
    assert fastresp.mass_insert(data, server=module_server.url).indexes == []
    report = fastresp.mass_insert(data, server=module_server.url, wait_index=True)
    assert [index.name for index in report.indexes] == ["docs"]


@pytest.mark.parametrize("option", [{"wait_index": True}, {"index_backlog": 1}])
def test_server_that_stops_answering(
    option: dict[str, Any], scanning_for_ever: str, module_server: LocalServer
) -> None:
    """The load waits no longer than the timeout."""

    def stop(report: fastresp.Report) -> None:
        if report.index_waiting:
            os.kill(module_server.process.pid, signal.SIGSTOP)

    try:
        with pytest.raises(fastresp.TransportError, match="can't read the state") as caught:
            fastresp.mass_insert(
                rows(10), TEMPLATE, server=scanning_for_ever, timeout=0.5, progress=stop,
                transport="socket", **option,
            )  # fmt: skip
    finally:
        os.kill(module_server.process.pid, signal.SIGCONT)
    assert caught.value.report is not None
    assert caught.value.report.index_waiting > 0


@pytest.mark.parametrize("option", [{"wait_index": True}, {"index_backlog": 1}])
def test_no_progress(option: dict[str, Any], insert_singly: Insert, scanning_for_ever: str) -> None:
    with pytest.raises(fastresp.TransportTimeout, match=r"no progress for 0\.3 s: index docs"):
        insert_singly(rows(10), TEMPLATE, server=scanning_for_ever, timeout=0.3, **option)


@pytest.mark.parametrize(
    ("option", "replies"), [({"wait_index": True}, 10), ({"index_backlog": 1}, 0)]
)
def test_cancelled(option: dict[str, Any], replies: int, scanning_for_ever: str) -> None:
    async def cancelled() -> fastresp.Report:
        waits = asyncio.Event()

        def seen(report: fastresp.Report) -> None:
            if report.index_waiting:
                waits.set()

        loading = asyncio.ensure_future(
            fastresp.aio.mass_insert(
                rows(10), TEMPLATE, server=scanning_for_ever, progress=seen, **option
            )
        )
        await waits.wait()
        loading.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await loading
        return caught.value.report  # type: ignore[attr-defined, no-any-return]

    report = asyncio.run(cancelled())
    assert (report.replies, report.index_waiting) == (replies, 1)


@pytest.mark.few(1)
def test_command_line(scanning: redis.Redis, module_server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "docs.csv"
    path.write_text("id,n\n1,1\n2,two\n")
    load = ["load", path, "HSET doc:{id} {**}", "--server", module_server.url]
    done = invoke(*load, "--wait-index", "--index-backlog", 10, "--json")
    assert done.exit_code == Exit.OK, done.stderr
    [index] = json.loads(done.stdout)["indexes"]
    assert index["name"] == "docs"
    assert (index["documents"], index["waiting"], index["failures"]) == (MANY - 1, 0, 1)
    done = invoke(*load)
    assert f"index docs: {MANY - 1:,} documents, up to date, 1 indexing failure" in done.stderr
    done = invoke(*load, "--index-backlog", 10, "--transport", "redis-cli")
    assert "can't pause for an index; use --transport socket" in done.stderr


@pytest.mark.parametrize("option", ["--wait-index", "--index-backlog=1"])
def test_interrupted(
    option: str, scanning_for_ever: str, client: redis.Redis, tmp_path: Path
) -> None:
    """Ctrl-C ends each wait, after the rows that were read are sent."""
    path = tmp_path / "docs.csv"
    path.write_text("id,n\n1,1\n2,2\n")
    child = preloaded.Popen(
        [*PROGRAM, "load", str(path), "HSET doc:{id} {**}", "--server", scanning_for_ever, option,
         "--json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while calls(client).get("FT.INFO", 0) < 4:
        assert child.poll() is None
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    said = json.loads(output)
    assert said["exit_code"] == Exit.INTERRUPTED
    assert (said["replies"], said["indexes"][0]["waiting"]) == (2, 1)
    assert client.dbsize() == 2


def test_cluster(tmp_path: Path) -> None:
    """Without a coordinator, each node has its own indexes over its own keys."""
    options = module_options(tmp_path, "search")
    program = located("redis-8.2", WHEEL_SERVERS)
    with LocalCluster(2, program=program, options=lambda port: options) as cluster:
        names = ["i{a}", "i{b}"]  # their slots are on different nodes
        for name in names:
            create(cluster.client_of(name), name)
        assert [len(call(client, "FT._LIST")) for client in cluster.clients] == [1, 1]
        report = fastresp.mass_insert(
            rows(500), TEMPLATE, server=cluster.url, wait_index=True, index_backlog=100
        )
        assert {index.name for index in report.indexes} == set(names)
        assert sum(index.documents for index in report.indexes) == 500
        report = fastresp.mass_insert([(1, "one", "")], TEMPLATE, server=cluster.url)
        assert sum(index.failures for index in report.indexes) == 1


@pytest.mark.parametrize("backlog", [0, -1, 1.5, "10", True])
def test_bad_backlog(backlog: Any) -> None:
    with pytest.raises(ValueError, match="index_backlog must be a whole number of documents"):
        fastresp.mass_insert([], "HSET {0} a 1", index_backlog=backlog)
