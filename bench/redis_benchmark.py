"""redis-benchmark, redis-py with the same commands, and a connection for each command.

- Table ``001 redis-benchmark``: each line of ``redis-benchmark -c 1``, and the same commands with
  redis-py, one by one, with either parser. The names are redis-benchmark's. LRANGE of 450, a line
  of 2013 that it no longer has, is passed to it as a command; so are all LRANGEs and the preceding
  LPUSH, since each of its own lines for them pushes again.
- Tables ``000 push`` and ``000 pop``: the rows that the 2018 report left empty; values of 129
  bytes, one client, 100,000 commands, or 500,000 with ``-P 1000``. They only push or only pop; the
  other rows of these tables do both in turn. RPOP starts with a full list. The rows of LRANGE_100
  count commands; the number of items is in the metadata as ``items``.
- Table ``001 connections``: SETs over one connection, over a new one for each (the pool's is closed
  after each command), and with a new ``redis.Redis()`` for each, over a unix socket and TCP.

The contenders take turns line by line, each in a database of its own. redis-benchmark runs each
line as a process: its time is computed from the rate it prints, the server's CPU time covers the
whole process. After each line the server's count of commands is checked, and after a round the
contents of the databases. Clients that send one command at a time share one core with the server
(``cores.py`` says why), except in the rows of ``two cores``; the metadata of each value has the
server's context switches and the load.

    python bench/redis_benchmark.py -o redis_benchmark.json       # about 10 minutes
    python bench/redis_benchmark.py --fast --commands 1000
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from typing import Any

import psutil
import redis
from cores import one_core, take_noted, two_cores
from redis_py_client import redis_py
from results import Result
from turns import arguments, finish, show

from fastresp import TransportError, mass_insert
from fastresp.cli.demo.generators import PAYLOAD
from fastresp.cli.demo.methods import Workbench
from fastresp.server.local_server import find_program

BENCHMARK = "redis-benchmark"
MISSING = (
    "redis-benchmark was not found (Debian: apt install redis-tools), nor named by "
    "FASTRESP_BENCHMARK"
)
TOO_SHORT = "too short for redis-benchmark's clock of milliseconds; raise --commands"
COMMANDS = 10_000
# With a connection for each command.
CONNECTIONS = 2_000
DEPTH = 1_000
# The rows of 2018 have this many times the commands, one by one and 1,000 at a time.
MORE, MORE_PIPELINED = 10, 50
# Commands of each line in the warm-up round.
WARM = 100
PARSERS = {"PythonParser": "PythonParser", "hiredis": "HiredisParser"}

DATA = "xxx"
ELEMENT = "element:__rand_int__"
TEN_KEYS = {f"key:{index:012}": DATA for index in range(10)}
Command = Callable[[Any], object]
# By the name that redis-benchmark prints, up to a space; RANGE matches the LRANGEs.
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


NAMES = {name_of(line) for line in (*SAME, *RANGES)}


class Server:
    """The server, and redis-benchmark for it."""

    def __init__(self, workbench: Workbench) -> None:
        self.url = workbench.server.url
        self.socket = workbench.server.socket
        self.port = int(workbench.url.rpartition(":")[2])
        self.client: Any = workbench.client
        self.process = psutil.Process(workbench.server.process.pid)
        self.program = find_program("benchmark")

    def where(self, tcp: bool = False) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port)] if tcp else ["-s", str(self.socket)]

    def rates(self, commands: int, *options: str, tcp: bool = False) -> dict[str, float]:
        """Run redis-benchmark; return commands per second, by the names that it prints."""
        assert self.program is not None  # not called without it
        command = [self.program, *self.where(tcp), "-c", "1", "-n", str(commands), "--csv"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        lines = list(csv.reader(done.stdout.splitlines()))
        rates = {line[0]: float(line[1]) for line in lines if len(line) > 1 and line[1] != "rps"}
        if done.returncode or not rates:
            sys.exit(f"{BENCHMARK} failed: {done.stderr.strip() or 'it printed nothing'}")
        return rates

    def take_rate(
        self,
        result: Result,
        keep: bool,
        commands: int,
        *options: str,
        tcp: bool = False,
        **details: Any,
    ) -> None:
        """Add redis-benchmark's time for one line, computed from the rate it prints."""

        def run() -> float:
            [rate] = self.rates(commands, *options, tcp=tcp).values()
            return commands / rate

        keep = keep and not result.reason
        if not take_noted(result, run, self.process, keep, **details) and keep:
            result.reason = TOO_SHORT
            result.values.clear()
            result.details.clear()

    def empty(self) -> None:
        """Remove all keys, and reset the server's counts."""
        self.client.flushall()
        self.client.config_resetstat()

    def check_calls(self, what: str, name: str, count: int) -> None:
        """End the program unless ``count`` of one command were executed since, and no other."""
        stats = self.client.info("commandstats")
        calls = {key.removeprefix("cmdstat_"): each["calls"] for key, each in stats.items()}
        # redis-py's incr() sends INCRBY.
        calls["incr"] = calls.get("incr", 0) + calls.pop("incrby", 0)
        found = {key: number for key, number in calls.items() if key in NAMES and number}
        if found != {name: count}:
            sys.exit(f"{what}: the server executed {found} instead of {count:,} {name}")


def contents(client: Any) -> dict[str, object]:
    """Return the contents of a database: sizes, and the values of strings."""
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


class Lines:
    """Table ``001 redis-benchmark``."""

    TABLE = "001 redis-benchmark"

    def __init__(self, server: Server, commands: int) -> None:
        self.server = server
        self.commands = commands
        self.clients: dict[str, Any] = {
            name: redis_py(server.socket, known, database)
            for database, (name, known) in enumerate(PARSERS.items(), 1)
        }
        # The lines that it prints, in its order; without it, the commands that redis-py can run.
        self.lines = [*SAME, NEEDED, *RANGES]
        if server.program:
            self.lines = list(server.rates(WARM))
            if not any("first 450" in line for line in self.lines):
                self.lines.insert(self.lines.index(RANGES[1]) + 1, GONE)
        self.results = {
            (line, by): Result(self.TABLE, line, by, commands)
            for line in self.lines
            for by in (BENCHMARK, *PARSERS)
        }
        for (line, by), result in self.results.items():
            if by == BENCHMARK:
                result.reason = "" if server.program else MISSING
            elif command_of(line) is None:
                unknown = "this script does not know this line of redis-benchmark"
                result.reason = NO_COMMAND.get(line, unknown)
        self.turns = [key for key, result in self.results.items() if not result.reason]

    def run(self, keep: bool) -> None:
        """Run each line with each contender, starting with an empty database."""
        commands = self.commands if keep else WARM
        self.server.empty()
        with one_core(self.server.process.pid):
            for line, by in self.turns:
                show(f"{self.TABLE}: {line} {by}")
                self.server.client.config_resetstat()
                self.turn(line, by, commands, keep)
                if command_of(line):
                    self.server.check_calls(f"{line} {by}", name_of(line), commands)
        self.check()

    def turn(self, line: str, by: str, commands: int, keep: bool) -> None:
        result = self.results[line, by]
        if by == BENCHMARK:
            self.server.take_rate(result, keep, commands, *options_of(line))
            return
        client, command = self.clients[by], command_of(line)
        assert command is not None  # otherwise it has no turn

        def run() -> None:
            for _ in range(commands):
                command(client)

        take_noted(result, run, self.server.process, keep)

    def check(self) -> None:
        """End the program unless all left the same data."""
        databases = dict(self.clients)
        if self.server.program and all(
            command_of(each) or each in NO_COMMAND for each in self.lines
        ):
            databases[BENCHMARK] = self.server.client
        held = {by: contents(client) for by, client in databases.items()}
        first, *others = held.values()
        if any(other != first for other in others):
            sys.exit(f"{self.TABLE}: the contenders left different data: {held}")


class EmptyRows:
    """The rows that the 2018 report left empty."""

    def __init__(self, server: Server, commands: int) -> None:
        self.server = server
        self.results: list[tuple[Result, str, int]] = []
        for depth, pipelined in ((1, ""), (DEPTH, f" -P {DEPTH}")):
            more = MORE if depth == 1 else MORE_PIPELINED
            count = commands * more // DEPTH * DEPTH
            row = f"{BENCHMARK} -c 1 -d {len(PAYLOAD)}{pipelined}"
            self.results.append((Result("000 push", row, "", count), "LPUSH", depth))
            self.results.append((Result("000 pop", f"{row} (RPOP)", "", count), "RPOP", depth))
            if depth == 1:
                of_ranges = Result("000 pop", f"{row} (LRANGE_100)", "", count)
                self.results.append((of_ranges, RANGES[0], 1))
        for result, _, _ in self.results:
            result.reason = "" if server.program else MISSING

    def run(self, keep: bool) -> None:
        for result, line, depth in self.results if self.server.program else ():
            show(f"{result.table}: {result.row}")
            count = result.operations if keep else max(WARM, depth)
            self.server.empty()
            if line != "LPUSH":
                items = (("LPUSH", "mylist", PAYLOAD) for _ in range(count))
                mass_insert(items, server=self.server.url, transport="socket")
                self.server.client.config_resetstat()
            options = "-d", str(len(PAYLOAD)), "-P", str(depth), *options_of(line)
            more = {"items": 100 * count} if line == RANGES[0] else {}
            with one_core(self.server.process.pid) if depth == 1 else nullcontext():
                self.server.take_rate(result, keep, count, *options, **more)
            self.server.check_calls(result.row, name_of(line), count)
            # Every pop must have returned an item.
            left = self.server.client.llen("mylist")
            if left != (0 if line == "RPOP" else count):
                sys.exit(f"{result.row}: {left:,} of {count:,} items are left")


class Connections:
    """Table ``001 connections``."""

    TABLE = "001 connections"
    WAYS = ("one connection", "a connection per command", "a client per command")
    TWO_CORES = ", two cores"

    def __init__(self, server: Server, commands: int, connections: int) -> None:
        self.server = server
        ways = (*self.WAYS, *(way + self.TWO_CORES for way in self.WAYS[:2]))
        self.results: dict[tuple[str, str, str], Result] = {}
        for place, way, by in product(("unix socket", "TCP"), ways, (BENCHMARK, "hiredis")):
            count = commands if way.startswith(self.WAYS[0]) else connections
            result = Result(self.TABLE, f"{place}, {way}", by, count)
            if by == BENCHMARK:
                result.reason = "" if server.program else MISSING
                if way == self.WAYS[2]:
                    result.reason = "redis-benchmark creates its clients beforehand"
            self.results[place, way, by] = result
        self.turns = [key for key, result in self.results.items() if not result.reason]

    def run(self, keep: bool) -> None:
        for place, way, by in self.turns:
            result = self.results[place, way, by]
            commands = result.operations if keep else WARM
            show(f"{self.TABLE}: {result.row} {by}")
            self.server.empty()
            cores = two_cores if way.endswith(self.TWO_CORES) else one_core
            with cores(self.server.process.pid):
                if by == BENCHMARK:
                    reused = "1" if way.startswith(self.WAYS[0]) else "0"
                    options = "-t", "set", "-k", reused
                    self.server.take_rate(result, keep, commands, *options, tcp=place == "TCP")
                else:
                    self.run_redis_py(result, commands, place, way, keep)
            self.server.check_calls(f"{result.row} {by}", "set", commands)

    def run_redis_py(self, result: Result, commands: int, place: str, way: str, keep: bool) -> None:
        where: dict[str, Any] = {"unix_socket_path": str(self.server.socket)}
        if place == "TCP":
            where = {"port": self.server.port}

        def over_one() -> None:
            for _ in range(commands):
                one.set("key:__rand_int__", DATA)

        def over_many() -> None:
            for _ in range(commands):
                one.set("key:__rand_int__", DATA)
                one.connection_pool.disconnect()

        def by_many() -> None:
            for _ in range(commands):
                with redis.Redis(**where, protocol=2) as client:
                    client.set("key:__rand_int__", DATA)

        one = redis_py(self.server.port if place == "TCP" else self.server.socket, "HiredisParser")
        runs = dict(zip(self.WAYS, (over_one, over_many, by_many), strict=True))
        run = runs[way.removesuffix(self.TWO_CORES)]
        take_noted(result, run, self.server.process, keep)
        one.close()


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=10, fast_rounds=5)
    parser.add_argument("--commands", type=int, default=COMMANDS, help="commands in each line")
    args = parsed()
    if args.commands < WARM:
        parser.error(f"--commands must be {WARM} or more")
    try:
        with Workbench.open(tcp=True) as workbench:
            server = Server(workbench)
            lines = Lines(server, args.commands)
            empty_rows = EmptyRows(server, args.commands)
            over = Connections(server, args.commands, min(CONNECTIONS, args.commands))
            for number in range(args.rounds + 1):
                for each in (lines, empty_rows, over):
                    each.run(keep=number > 0)
    except TransportError as error:
        sys.exit(str(error))
    show("")
    rows = [*lines.results.values(), *over.results.values()]
    finish([*rows, *(result for result, _, _ in empty_rows.results)], args.output)


if __name__ == "__main__":
    main()
