"""redis-benchmark, redis-py with the same commands, and a connection for each command.

The contenders take turns line by line, each in a separate database. For each line, redis-benchmark
runs as a process: its time is computed from the rate that it prints, and the server's CPU time is
measured from the start to the end of the process. After each line, the server's count of commands
is checked, and after all rounds the contents of the databases. Clients that send one command at a
time share one core with the server (``cores.py`` says why), except in the rows of ``two cores``.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import redis
from cores import apart, one_core
from results import Result
from script import run_script
from servers import PARSERS, Server, running
from turns import Contender, Entry, NotAvailable, Timed, measure, time_once

from fastresp import mass_insert
from fastresp.cli.demo.methods import PAYLOAD
from fastresp.server.local_server import find_program

BENCHMARK = "redis-benchmark"
MISSING = "redis-benchmark was not found; install redis-tools (Debian), or set FASTRESP_BENCHMARK"
TOO_SHORT = "too short for redis-benchmark's clock of milliseconds; raise --commands"
COMMANDS = 10_000
# Number of commands that have a connection each.
CONNECTIONS = 2_000
DEPTH = 1_000
# Factors of the number of commands in the rows of 2018: one by one, and 1,000 at a time.
MORE, MORE_PIPELINED = 10, 50
# Commands of each line in the run that lists the lines.
WARM = 100

DATA = "xxx"
ELEMENT = "element:__rand_int__"
TEN_KEYS = {f"key:{index:012}": DATA for index in range(10)}
Command = Callable[[Any], object]
# By the first word of the line that redis-benchmark prints; RANGE matches the lines of LRANGE.
SAME: dict[str, Command] = {
    "PING_MBULK": lambda client: client.ping(),
    "SET": lambda client: client.set("key:__rand_int__", DATA),
    "GET": lambda client: client.get("key:__rand_int__"),
    "INCR": lambda client: client.incr("counter:__rand_int__"),
    "LPUSH": lambda client: client.lpush("mylist", DATA),
    "RPUSH": lambda client: client.rpush("mylist", DATA),
    "LPOP": lambda client: client.lpop("mylist"),
    "RPOP": lambda client: client.rpop("mylist"),
    "SADD": lambda client: client.sadd("myset", ELEMENT),
    "HSET": lambda client: client.hset("myhash", ELEMENT, DATA),
    "SPOP": lambda client: client.spop("myset"),
    "ZADD": lambda client: client.zadd("myzset", {ELEMENT: 0}),
    "ZPOPMIN": lambda client: client.zpopmin("myzset"),
    "MSET": lambda client: client.mset(TEN_KEYS),
    "XADD": lambda client: client.xadd("mystream", {"myfield": DATA}),
}
RANGE = re.compile(r"LRANGE.*\(first (\d+) elements\)")
NEEDED = "LPUSH (needed to benchmark LRANGE)"
RANGES = [f"LRANGE_{count} (first {count} elements)" for count in (100, 300, 450, 500, 600)]
# A line of 2013. The current LRANGE_500 read 450 until 2021 (redis/redis#8872).
GONE = RANGES[2]
NO_COMMAND = {"PING_INLINE": "redis-py has no inline commands"}


def command_of(line: str) -> Command | None:
    """Return redis-py's call for a line of redis-benchmark."""
    if found := RANGE.match(line):
        last = int(found[1]) - 1
        return lambda client: client.lrange("mylist", 0, last)
    return SAME.get(line.partition(" ")[0])


def options_of(line: str) -> list[str]:
    """Return the options that make redis-benchmark run only this line."""
    if found := RANGE.match(line):
        return ["LRANGE", "mylist", "0", str(int(found[1]) - 1)]
    if "LRANGE" in line:
        return ["LPUSH", "mylist", DATA]
    return ["-t", line.partition(" ")[0].lower()]


def name_of(line: str) -> str:
    """Return the name of a line's command in the server's statistics."""
    return re.split(r"[ _]", line)[0].lower()


WAYS = ("one connection", "a connection per command", "a client per command")
NAMES = {name_of(line) for line in (*SAME, *RANGES)}


class Benchmarked(Server):
    """A server, and redis-benchmark for it."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.local, server.tcp)
        self.program = find_program("benchmark")

    def rates(self, commands: int, *options: str, tcp: bool = False) -> dict[str, float]:
        """Run redis-benchmark; return the commands per second of each line, by its name.

        Raises:
            NotAvailable: there is no redis-benchmark.
        """
        if self.program is None:
            raise NotAvailable(MISSING)
        where = ["-s", str(self.unix.where)]
        if tcp:
            where = ["-h", "127.0.0.1", "-p", str(self.tcp.where)]
        command = [self.program, *where, "-c", "1", "-n", str(commands), "--csv"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        lines = list(csv.reader(done.stdout.splitlines()))
        rates = {line[0]: float(line[1]) for line in lines if len(line) > 1 and line[1] != "rps"}
        if done.returncode or not rates:
            sys.exit(f"{BENCHMARK} failed: {done.stderr.strip() or 'it printed nothing'}")
        return rates

    def seconds(self, commands: int, *options: str, tcp: bool = False) -> float:
        """Return redis-benchmark's time for one line, computed from the rate that it prints."""
        [rate] = self.rates(commands, *options, tcp=tcp).values()
        return commands / rate

    def contender(
        self,
        prepare: Callable[[], object],
        run: Contender,
        check: Callable[[], object],
        cores: Callable[[int], AbstractContextManager[object]] = one_core,
    ) -> Contender:
        """Return a contender that places the processes, prepares and checks its work untimed."""

        def measured() -> Timed:
            prepare()
            with cores(self.process.pid):
                found = time_once(run, self.process)
            if not found.value:
                raise NotAvailable(TOO_SHORT)
            check()
            return found

        return measured

    def clear(self) -> None:
        """Remove all keys, and reset the server's counts."""
        self.empty()
        self.client.config_resetstat()

    def check_calls(self, what: str, name: str, count: int) -> None:
        """End the program unless the server has run one command ``count`` times, and no other."""
        stats = self.client.info("commandstats")
        calls = {key.removeprefix("cmdstat_"): each["calls"] for key, each in stats.items()}
        # redis-py's incr() sends INCRBY.
        calls["incr"] = calls.get("incr", 0) + calls.pop("incrby", 0)
        found = {key: number for key, number in calls.items() if key in NAMES and number}
        if found != {name: count}:
            sys.exit(f"{what}: the server executed {found} instead of {count:,} {name}")


def contents(client: Any) -> dict[str, object]:
    sizes: dict[str, Callable[[str], object]] = {
        "string": client.get,
        "list": client.llen,
        "hash": client.hlen,
        "set": client.scard,
        "zset": client.zcard,
        "stream": client.xlen,
    }
    # redis-benchmark numbers its keys differently, so the keys of SET and MSET are left out.
    keys = sorted(key.decode() for key in client.scan_iter() if key[:4] != b"key:")
    return {key.partition(":")[0]: sizes[client.type(key).decode()](key) for key in keys}


def lines_of(server: Benchmarked) -> list[str]:
    """Return the lines that redis-benchmark prints; without it, the lines that redis-py can run."""
    if server.program is None:
        return [*SAME, NEEDED, *RANGES]
    lines = list(server.rates(WARM))
    if not any("first 450" in line for line in lines):
        lines.insert(lines.index(RANGES[1]) + 1, GONE)
    return lines


def same_commands(
    server: Benchmarked, clients: dict[str, Any], line: str, commands: int
) -> list[Entry]:
    """Return the rows of a line in table ``001 redis-benchmark``."""
    command = command_of(line)

    def check() -> None:
        if command:
            server.check_calls(line, name_of(line), commands)

    def run(client: Any) -> None:
        for _ in range(commands):
            command(client)

    resetstat = server.client.config_resetstat
    runs: dict[str, Callable[[], object]] = {
        BENCHMARK: lambda: server.seconds(commands, *options_of(line)),
        **{by: partial(run, client) for by, client in clients.items()},
    }
    unknown = NO_COMMAND.get(line, "this script does not know this line of redis-benchmark")
    return [
        (
            Result("001 redis-benchmark", line, by, commands),
            server.contender(resetstat, run, check) if command or by == BENCHMARK else unknown,
        )
        for by, run in runs.items()
    ]


def check_contents(server: Benchmarked, clients: dict[str, Any], lines: list[str]) -> None:
    """End the program unless all contenders left the same data."""
    databases = dict(clients)
    if server.program and all(command_of(each) or each in NO_COMMAND for each in lines):
        databases[BENCHMARK] = server.client
    held = {by: contents(client) for by, client in databases.items()}
    first, *others = held.values()
    if any(other != first for other in others):
        sys.exit(f"the contenders left different data: {held}")


def empty_rows(server: Benchmarked, commands: int) -> Iterator[Entry]:
    """Yield the rows that the 2018 report left empty."""

    def entry(table: str, row: str, line: str, depth: int, count: int) -> Entry:
        def prepare() -> None:
            server.clear()
            if line != "LPUSH":
                items = (("LPUSH", "mylist", PAYLOAD) for _ in range(count))
                mass_insert(items, server=server.url, transport="socket")
                server.client.config_resetstat()

        def run() -> Timed:
            options = "-d", str(len(PAYLOAD)), "-P", str(depth), *options_of(line)
            more = {"items": 100 * count} if line == RANGES[0] else {}
            return Timed(server.seconds(count, *options), more)

        def check() -> None:
            server.check_calls(row, name_of(line), count)
            # Every pop must have returned an item.
            left = server.client.llen("mylist")
            if left != (0 if line == "RPOP" else count):
                sys.exit(f"{row}: {left:,} of {count:,} items are left")

        cores = one_core if depth == 1 else nullcontext
        return Result(table, row, "", count), server.contender(prepare, run, check, cores)

    for depth, pipelined in ((1, ""), (DEPTH, f" -P {DEPTH}")):
        count = commands * (MORE if depth == 1 else MORE_PIPELINED) // DEPTH * DEPTH
        row = f"{BENCHMARK} -c 1 -d {len(PAYLOAD)}{pipelined}"
        yield entry("000 push", row, "LPUSH", depth, count)
        yield entry("000 pop", f"{row} (RPOP)", "RPOP", depth, count)
        if depth == 1:
            yield entry("000 pop", f"{row} (LRANGE_100)", RANGES[0], depth, count)


def connections(server: Benchmarked, commands: int, fewer: int) -> Iterator[Entry]:
    """Yield the rows of table ``001 connections``, where most commands have a new connection."""

    def entry(place: str, way: str, by: str, cores: Any, words: str) -> Entry:
        row, address = f"{place}, {way}{words}", server.tcp if place == "TCP" else server.unix
        count = commands if way == WAYS[0] else fewer
        result = Result("001 connections", row, by, count)
        if by == BENCHMARK and way == WAYS[2]:
            return result, "redis-benchmark creates its clients beforehand"
        where: dict[str, Any] = {"port": address.where}
        if place != "TCP":
            where = {"unix_socket_path": str(address.where)}

        one = address.client()

        def run() -> float | None:
            if by == BENCHMARK:
                reused = "1" if way == WAYS[0] else "0"
                return server.seconds(count, "-t", "set", "-k", reused, tcp=place == "TCP")
            if way == WAYS[2]:
                for _ in range(count):
                    with redis.Redis(**where, protocol=2) as client:
                        client.set("key:__rand_int__", DATA)
                return None
            for _ in range(count):
                one.set("key:__rand_int__", DATA)
                if way == WAYS[1]:
                    one.connection_pool.disconnect()
            return None

        def check() -> None:
            server.check_calls(f"{row} {by}", "set", count)

        return result, server.contender(server.clear, run, check, cores)

    for place in ("unix socket", "TCP"):
        for way, cores, words in (
            *((way, one_core, "") for way in WAYS),
            *((way, apart, ", two cores") for way in WAYS[:2]),
        ):
            for by in (BENCHMARK, "hiredis"):
                yield entry(place, way, by, cores, words)


def compare(args: argparse.Namespace) -> list[Result]:
    if args.commands < WARM:
        raise SystemExit(f"--commands must be {WARM} or more")
    with running() as plain:
        server = Benchmarked(plain)
        clients = {by: server.unix.client(by, number) for number, by in enumerate(PARSERS, 1)}
        lines = lines_of(server)
        server.empty()
        same = [e for line in lines for e in same_commands(server, clients, line, args.commands)]
        results = measure(same, args.rounds)
        check_contents(server, clients, lines)
        others = [
            *connections(server, args.commands, min(CONNECTIONS, args.commands)),
            *empty_rows(server, args.commands),
        ]
        return results + measure(others, args.rounds)


if __name__ == "__main__":
    run_script(__doc__, compare, 10, 5, commands=("commands in each line", COMMANDS))
