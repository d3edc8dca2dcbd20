"""Loads of a whole local cluster, and ``redis-cli --pipe`` for each node, for ``scale.py``.

Clients run on the last core; the nodes share the other cores (with two cores, the first core). So a
load takes at least the total CPU time of the nodes on the busiest core (``server_cpu``), and no
more if the nodes never wait for the client. The CPU time of the slowest node is ``node_cpu``. After
each load, each primary must have exactly the keys of its slots, and each replica as many keys as
its primary. ``key_bytes`` is the memory of a key.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen
from time import perf_counter
from typing import Any, NamedTuple

from cores import CpuTimes, Places, apart
from loader import SOURCES, Loader, rows, timed
from redis.crc import key_slot
from results import Result
from servers import LocalCluster
from turns import Contender, NotAvailable, Timed, cpu_seconds, entries, measure

from fastresp import dump
from fastresp.resp.slots import SLOTS
from fastresp.server.local_server import find_program

ROWS = 1_000_000
VALUE = 129
TABLE = "scale cluster"
# A busy machine must not make a node seem to have failed.
NODE_TIMEOUT_MS = 60_000
SYNC_MS = 30_000


@dataclass(frozen=True)
class Setup:
    """A cluster: its primaries, and the replicas of each."""

    primaries: int
    replicas: int = 0

    def __str__(self) -> str:
        return f"{self.primaries}+{self.primaries * self.replicas}"


class Shares(NamedTuple):
    """The commands of each primary.

    Attributes:
        files: a RESP file for each primary.
        keys: the number of keys in each file.
    """

    files: list[Path]
    keys: list[int]


@contextmanager
def write_shares(primaries: int, count: int) -> Iterator[Shares]:
    """Write files with the commands for each primary, in a ``with`` statement."""
    first = [number * SLOTS // primaries for number in range(primaries)]
    shares: list[list[tuple[str, str]]] = [[] for _ in first]
    for row in rows(count, VALUE):
        shares[bisect_right(first, key_slot(row[0].encode())) - 1].append(row)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.resp" for number in range(primaries)]
        for share, file in zip(shares, files, strict=True):
            dump(share, "SET {0} {1}", file)
        yield Shares(files, [len(share) for share in shares])


class Cluster:
    """The ways to load a running cluster."""

    def __init__(self, cluster: LocalCluster, setup: Setup, shares: Shares, places: Places) -> None:
        self._cluster = cluster
        self._setup = setup
        self._shares = shares
        self._places = places
        self._empty_bytes = 0
        self._primaries = cluster.clients[: setup.primaries]
        for client in cluster.clients:
            client.config_set("cluster-node-timeout", NODE_TIMEOUT_MS)

    def load(self, source: str) -> dict[str, Any]:
        """Load with one loader process; return its report, and the CPU times of the nodes."""
        count = sum(self._shares.keys)
        loader = Loader(self._cluster.url, source, count, value=VALUE, block=count)
        self._empty()  # removes the keys of the loader's first load
        times = self._times()
        return loader.run() | times.since()

    def load_directly(self, program: str | None) -> dict[str, Any]:
        """Load with a redis-cli for each node; return what ``load()`` returns."""
        if program is None:
            raise NotAvailable("redis-cli is missing")
        self._empty()
        times, used, begun = self._times(), cpu_seconds(None)[1], perf_counter()
        running = []
        for port, path in zip(self._cluster.ports, self._shares.files, strict=False):
            with open(path, "rb") as file:
                command = [program, "-p", str(port), "--pipe"]
                running.append(Popen(command, stdin=file, stdout=DEVNULL, stderr=DEVNULL))
        codes = [process.wait() for process in running]
        facts = {"seconds": perf_counter() - begun, "cpu": cpu_seconds(None)[1] - used}
        if any(codes):
            raise SystemExit(f"{program} --pipe failed with exit code {max(codes)}")
        return facts | times.since()

    def check(self, row: str) -> float:
        """Return the memory of a key in bytes; end the program unless each node has its keys."""
        self._wait()
        sizes = [client.dbsize() for client in self._cluster.clients]
        # The replicas of all primaries follow in the same order.
        expected = self._shares.keys * (1 + self._setup.replicas)
        if sizes != expected:
            raise SystemExit(f"{row}: the nodes have {sizes} keys instead of {expected}")
        return (self._memory() - self._empty_bytes) / sum(self._shares.keys)

    def _empty(self) -> None:
        for client in self._primaries:
            client.execute_command("FLUSHALL", "SYNC")
        self._wait()
        self._empty_bytes = self._memory()

    def _wait(self) -> None:
        """Wait until the replicas are in sync with their primaries."""
        for client in self._primaries:
            if client.execute_command("WAIT", self._setup.replicas, SYNC_MS) < self._setup.replicas:
                raise SystemExit(f"{self._setup}: a replica has not followed for {SYNC_MS} ms")

    def _memory(self) -> int:
        """Return the memory that all primaries use, in bytes."""
        infos: list[Any] = [client.info("memory") for client in self._primaries]
        return sum(info["used_memory"] for info in infos)

    def _times(self) -> CpuTimes:
        return CpuTimes([node.process.pid for node in self._cluster.nodes], self._places)


def measure_cluster(setup: Setup, count: int, rounds: int, *, free: bool) -> list[Result]:
    """Load a cluster in each way, in turn."""
    with write_shares(setup.primaries, count) as shares, LocalCluster(*astuple(setup)) as running:
        pids = [node.process.pid for node in running.nodes]
        with nullcontext({}) if free else apart(*pids) as places:
            cluster = Cluster(running, setup, shares, places)

            def checked(row: str, load: Callable[[], dict[str, Any]]) -> Contender:
                def run() -> Timed:
                    facts = load()
                    facts["key_bytes"] = cluster.check(f"{setup} {row}")
                    return timed(facts["seconds"], facts)

                return run

            loads = {f"fastresp {source}": partial(cluster.load, source) for source in SOURCES}
            loads["redis-cli --pipe"] = partial(cluster.load_directly, find_program("cli"))
            runs = {row: checked(row, load) for row, load in loads.items()}
            contenders = entries(TABLE, runs, count, prefix=f"{setup} ")
            return measure(contenders, rounds, warm_up=False)
