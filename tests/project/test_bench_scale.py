"""bench/scale.py: sinks count every command, refuse what is not RESP, and take part in clusters."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import redis
from local_cluster import LocalCluster
from needed import lacking
from places import BENCH, ROOT
from redis.crc import key_slot
from server_programs import need

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

import scale
from c_programs import NotAvailable, compiled
from cores import CpuTimes, apart
from loader import Loader
from pages.data import NotMeasured, Results
from pages.measures import cost_of_more, growth, whole_cluster
from report import MARKED, filled
from results import Result
from scale_cluster import Cluster, Setup, write_shares
from sinks import SINK, Sinks

import fastresp
from fastresp.resp.slots import SLOTS
from fastresp.server.local_server import LocalServer

SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    with compiled(SINK, ["-Werror"]) as made:
        if isinstance(made, NotAvailable):
            lacking(str(made))
        yield made


def load(sinks: Sinks, rows: list[tuple[str, str]]) -> fastresp.Report:
    return fastresp.mass_insert(rows, "SET {0} {1}", server=sinks.url, transport="socket")


@pytest.mark.parametrize("nodes", [0, 1, 3, 8])
def test_each_sink_receives_the_commands_of_its_slots(program: Path, nodes: int) -> None:
    rows = [(f"key:{number}", "v" * (number % 200)) for number in range(10_000)]
    with Sinks(program, nodes) as sinks:
        report = load(sinks, rows)
        assert sinks.received() == (report.commands, report.bytes_sent)
    first = [number * SLOTS // max(nodes, 1) for number in range(max(nodes, 1))]
    assert len(sinks.printed) == len(first)
    for start, end, printed in zip(first, [*first[1:], SLOTS], sinks.printed, strict=True):
        own = sum(start <= key_slot(key.encode()) < end for key, _ in rows)
        assert f": {own} commands, " in printed
        assert f"\nsink_commands:{own}\n" in printed
    assert report.replies == len(rows)


def test_large_values(program: Path) -> None:
    """A command may be larger than one read of the sink."""
    rows = [(f"key:{number}", "v" * size) for number, size in enumerate((0, 1, 300_000, 5_000_000))]
    with Sinks(program) as sinks:
        report = load(sinks, rows * 3)
        assert sinks.received() == (12, report.bytes_sent)
        assert report.failed == 0


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_commands_in_pieces(program: Path, at_once: int) -> None:
    """The stream may be cut anywhere, and commands may have any names."""
    stream = SET * 20 + fastresp.pack("LPUSH", "key", *range(30)) + fastresp.pack("select_") + SET
    with Sinks(program) as sinks, socket.create_connection(("127.0.0.1", sinks.ports[0])) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(stream), at_once):
            client.sendall(stream[start : start + at_once])
        received = b""
        while len(received) < 23 * len(b"+OK\r\n"):
            received += client.recv(1000)
        assert received == b"+OK\r\n" * 23
        assert sinks.received() == (23, len(stream))


def test_questions_before_a_load_are_not_counted(program: Path) -> None:
    with Sinks(program) as sinks, redis.Redis(port=sinks.ports[0], protocol=2) as client:
        assert client.ping() is True
        assert client.echo("words") == b"words"
        pipeline = client.pipeline(transaction=False)
        assert pipeline.execute_command("MULTI").set("k", "v") is pipeline
        assert pipeline.execute_command("DISCARD").execute() == [b"OK", False, b"OK"]
        assert sinks.received() == (0, 0)
        with pytest.raises(redis.ResponseError, match="the sink has no such answer"):
            client.execute_command("CLUSTER", "SLOTS")
        assert client.set("k", "v") is True
        assert sinks.received() == (1, len(SET))


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (b"SET k v\r\n", "a command does not begin with *"),
        (b"+3\r\n", "a command does not begin with *"),
        (b"*0\r\n", "a command has no arguments"),
        (b"*x\r\n", "a length is not a number that ends with CRLF"),
        (b"*-1\r\n", "a length is not a number that ends with CRLF"),
        (b"*3\n$3\nSET", "a length is not a number that ends with CRLF"),
        (b"*3\r\r$3\r\n", "a length is not a number that ends with CRLF"),
        (b"*99999999\r\n", "a length is too large"),
        (b"*1\r\n$999999999\r\n", "a length is too large"),
        (b"*1\r\n:1\r\n", "an argument does not begin with $"),
        (b"*1\r\n$4\r\nPING+-", "an argument does not end with CRLF"),
        (b"*1\r\n$3\r\nPING\r\n", "an argument does not end with CRLF"),
        (SET * 2 + b"x", "a command does not begin with *"),
        (SET[:-1], "a connection ended within a command"),
        (SET + b"*", "a connection ended within a command"),
        (SET + b"*3\r\n$3\r\nSET\r\n$1", "a connection ended within a command"),
    ],
)
def test_malformed_streams(program: Path, stream: bytes, complaint: str) -> None:
    with (
        pytest.raises(SystemExit, match=complaint.replace("*", r"\*").replace("$", r"\$")),
        Sinks(program) as sinks,
    ):
        with socket.create_connection(("127.0.0.1", sinks.ports[0])) as client:
            client.sendall(stream)
        # It exits without a signal.
        sinks.processes[0].wait(10)
        assert sinks.processes[0].returncode == 1


def test_wrong_arguments(program: Path) -> None:
    done = subprocess.run([program, "0-5"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sink: usage: sink")
    done = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 1


@pytest.mark.few(0)
@pytest.mark.parametrize("source", ["rows", "columns"])
@pytest.mark.parametrize(("commands", "loads"), [(2_500, 1), (1_000, 3), (30, 2)])
def test_loader_repeats_its_block(program: Path, source: str, commands: int, loads: int) -> None:
    with Sinks(program, 2) as sinks:
        facts = scale.load_sinks(sinks, {}, source, commands, value=5, block=1_000, loads=loads)
    assert facts["commands"] == commands * loads
    assert facts["bytes"] == len(fastresp.pack("SET", "key:00000000", "x" * 5)) * commands * loads
    assert facts["cpu"] > 0
    assert 0 < facts["all_cpu"] == pytest.approx(facts["node_cpu"], rel=1)
    if "peak" in facts:
        assert 10_000_000 < facts["start"] <= facts["peak"]


def test_commands_that_do_not_arrive_are_noticed(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sinks(program) as sinks:
        received = iter([(5, 0), (104, 0)])
        monkeypatch.setattr(sinks, "received", lambda: next(received))
        with pytest.raises(SystemExit, match=r"the loader counts .* the sinks"):
            scale.load_sinks(sinks, {}, "rows", 100)


def test_a_loader_that_fails() -> None:
    loader = Loader("redis://127.0.0.1:1", "rows", 10)
    with pytest.raises(SystemExit, match=r"(?s)the loader failed: .*127.0.0.1:1"):
        loader.run()


@pytest.mark.slow
def test_a_real_server_gets_the_same_keys_again() -> None:
    with LocalServer() as server, redis.Redis.from_url(server.url) as client:
        times = partial(CpuTimes, [server.process.pid], {})
        facts = scale.load_server(client, server.url, times, 2_000, value=8, loads=2, block=500)
        assert client.dbsize() == 500
    assert facts["commands"] == 4_000


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_servers_are_kept_apart_from_the_loader() -> None:
    before = os.sched_getaffinity(0)
    with LocalServer() as one, LocalServer() as two:
        pids = [one.process.pid, two.process.pid]
        with apart(*pids) as places:
            for pid in (0, *pids):
                assert os.sched_getaffinity(pid) == {places[pid]}
            assert places[0] == max(before)
            assert (places[0] in (places[pids[0]], places[pids[1]])) == (len(before) == 1)
        assert os.sched_getaffinity(0) == before
        for cores, sharing in (((0, 0), True), ((0, 1), False)):
            times = CpuTimes(pids, dict(zip(pids, cores, strict=True)))
            for server in (one, two):
                with redis.Redis.from_url(server.url) as client:
                    client.ping()
            used = times.since()
            assert 0 < used["node_cpu"] < used["all_cpu"]
            assert used["server_cpu"] == used["all_cpu" if sharing else "node_cpu"]


@pytest.mark.few(0)
@pytest.mark.parametrize("setup", [Setup(3, 1), Setup(5)], ids=str)
def test_each_node_of_a_cluster_gets_its_share(setup: Setup, cli: str) -> None:
    need("server")
    with (
        write_shares(setup.primaries, 3_000) as shares,
        LocalCluster(setup.primaries, setup.replicas) as running,
    ):
        cluster = Cluster(running, setup, shares, {})
        for load in (partial(cluster.load, "columns"), partial(cluster.load_directly, cli)):
            assert load()["seconds"] > 0
            assert cluster.check("row") > 100
            assert running.sizes() == shares.keys
        assert sum(shares.keys) == 3_000
        running.client_of("another").set("another", 1)
        with pytest.raises(SystemExit, match="row: the nodes have"):
            cluster.check("row")


def results(*rows: Result) -> Results:
    found = Results()
    for row in rows:
        found.add("scale", row)
    return found


def row(
    table: str, name: str, values: list[float], operations: int = 1, **details: list[float]
) -> Result:
    made = Result(f"scale {table}", name, "", operations)
    for number, value in enumerate(values):
        made.add(value, round=number + 1, **{key: each[number] for key, each in details.items()})
    return made


def test_a_cluster_is_compared_with_its_necessary_costs() -> None:
    found = results(
        row("cluster", "ours", [2.0, 4.0, 6.0], 1_000, node_cpu=[1.0, 4.0, 5.0]),
        row("cluster", "direct", [2.0, 2.0, 6.0]),
    )
    measured = whole_cluster("ours", "direct")(found)
    assert (measured.low, measured.figure, measured.high, measured.operations) == (1, 1, 1, 1_000)
    found = results(
        row("cluster", "ours", [2.0, 4.0], node_cpu=[0.5, 1.0]), row("cluster", "direct", [1.0, 1])
    )
    assert whole_cluster("ours", "direct")(found).figure == 3


def test_large_loads_are_compared_by_round() -> None:
    found = results(
        row("commands", "more", [200.0, 330.0], 100, peak=[7 << 20, 5 << 20]),
        row("commands", "few", [2.0, 3.0, 9.0], 1, peak=[4 << 20, 4 << 20, 1 << 20]),
    )
    assert cost_of_more("more", "few")(found).high == pytest.approx(1.1)
    assert cost_of_more("more", "few")(found).low == 1
    assert (growth("more", "few")(found).low, growth("more", "few")(found).high) == (1, 3)


@pytest.fixture
def measured() -> Results:
    """The guide's figures, in simple numbers: a node runs a million commands per second."""
    return results(
        *(
            row(
                "lanes",
                f"{source}, {size} bytes, {nodes}",
                [9.0],
                10**6,
                client_cpu=[4.0],
                command_bytes=[size * 2.0],
            )
            for source in ("rows", "columns")
            for size in (8, 129)
            for nodes in ("no cluster", "100 nodes")
        ),
        row("commands", "100,000,000 into a sink", [2.0], 10**8, peak=[77 << 20]),
        row("commands", "1,000 into a sink", [2.0], 1_000, peak=[99 << 20]),
        row(
            "cluster", "3+0 fastresp columns", [9.0], 3 * 10**6, node_cpu=[1.0], key_bytes=[1234.5]
        ),
        row("cluster", "3+3 fastresp columns", [9.0], 3 * 10**6, node_cpu=[4.0], key_bytes=[1.0]),
    )


def test_the_guide_gets_the_figures(measured: Results) -> None:
    page = "A guide.\n\n" + "\n\n".join(
        f"<!-- published: {name} -->\n\nold\n\n<!-- end -->"
        for name in ("lanes", "largest-load", "plan")
    )
    made = filled(page, measured)
    assert filled(made, measured) == made
    for part in (
        "A guide.\n\n<!-- published: lanes -->\n\n| Nodes | rows, 8 bytes | ",
        "\n| no cluster | 0.25 M/s, 4 MB/s | 0.25 M/s, 64 MB/s | 0.25 M/s, 4 MB/s |",
        "\n| 100 nodes | 0.25 M/s, ",
        "100,000,000 commands needs 77 MiB",
        "\nnode = 1_000_000  #",
        "\nreplicated = 250_000  #",
        "\nprocess = 250_000  #",
        "\ncommand = 258  #",
        "\nkey = 1_230  #",
        "\nThe nodes take 100 s,\nwith a replica each 400 s.\n400 processes feed them.\n",
        "\nOne process takes 11.1 hours.\nThe network carries 2.58 TB,\n206 Gbit/s in all,\n",
        "\n```\n\n<!-- end -->",
    ):
        assert part in made, part
    with pytest.raises(NotMeasured, match="no row"):
        filled(page, results(row("lanes", "rows, 8 bytes, no cluster", [1.0])))
    guide = (ROOT / "docs" / "guides" / "scale.md").read_text()
    assert [found[1] for found in MARKED.finditer(guide)] == ["lanes", "largest-load", "plan"]
