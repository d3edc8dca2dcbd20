"""What redis-benchmark reports, and redis-py at the same commands; a connection for each of them.

- Table ``001 redis-benchmark``: each line of ``redis-benchmark -c 1``, and the same commands by
  redis-py, one by one, with either parser. The names are those that redis-benchmark prints.
- Tables ``000 push`` and ``000 pop``: the rows that the 2018 report left empty; values of 129
  bytes, by one client, also 1,000 commands at a time (``-P 1000``). RPOP begins with a full list.
  The rows of LRANGE_100 count commands; what they bring is in the metadata as ``items``.
- Table ``001 connections``: SETs over one connection, over a new one for each (the pool's is closed
  after each command), and by a new ``redis.Redis()`` for each, by unix socket and TCP. redis-py's
  share of redis-benchmark's rate over one connection is in the metadata as ``percent``.

redis-benchmark's values are commands by the rate that it prints. Its lines run in one process, so
the server's CPU time of each is not known. What the server counted as executed is compared, and so
is what is in it afterwards.

    python bench/redis_benchmark.py -o redis_benchmark.json       # about 8 minutes
    python bench/redis_benchmark.py --fast --commands 1000
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import redis
from redis_py_client import redis_py
from results import Result
from turns import arguments, finish, show, take

from fastresp import TransportError, mass_insert
from fastresp.generators import PAYLOAD
from fastresp.programs import find_program
from fastresp.stage import Stage

BENCHMARK = "redis-benchmark"
MISSING = (
    "redis-benchmark was not found (Debian: apt install redis-tools), nor named by "
    "FASTRESP_BENCHMARK"
)
TOO_SHORT = "it took less than a millisecond, redis-benchmark's clock; more --commands do"
COMMANDS = 10_000
CONNECTIONS = 2_000
DEPTH = 1_000
# So many more commands where they go 1,000 at a time.
MORE = 50
# Of each line in the untimed round.
WARM = 100
PARSERS = {"PythonParser": "PythonParser", "hiredis": "HiredisParser"}

DATA = "xxx"
ELEMENT = "element:__rand_int__"
TEN_KEYS = {f"key:{index:012}": DATA for index in range(10)}
Command = Callable[[Any], object]
# By the name that redis-benchmark prints, without what is in brackets.
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
    "LRANGE_100": lambda client: client.lrange("mylist", 0, 99),
    "LRANGE_300": lambda client: client.lrange("mylist", 0, 299),
    "LRANGE_450": lambda client: client.lrange("mylist", 0, 449),
    "LRANGE_500": lambda client: client.lrange("mylist", 0, 499),
    "LRANGE_600": lambda client: client.lrange("mylist", 0, 599),
    "MSET": lambda client: client.mset(TEN_KEYS),
    "XADD": lambda client: client.xadd("mystream", {"myfield": DATA}),
}
NO_COMMAND = {"PING_INLINE": "redis-py has no inline commands"}


class Server:
    """The server, and redis-benchmark for it."""

    def __init__(self, stage: Stage) -> None:
        self.url = stage.server.url
        self.socket = stage.server.socket
        self.port = int(stage.url.rpartition(":")[2])
        self.client: Any = stage.client
        self.process = psutil.Process(stage.server.process.pid)
        self.program = find_program("benchmark", "FASTRESP_BENCHMARK")

    def where(self, tcp: bool = False) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port)] if tcp else ["-s", str(self.socket)]

    def rates(self, commands: int, *options: str, tcp: bool = False) -> dict[str, float]:
        """Run redis-benchmark; the commands a second by the names that it prints."""
        assert self.program is not None  # without it nobody calls this
        command = [self.program, *self.where(tcp), "-c", "1", "-n", str(commands), *options]
        done = subprocess.run([*command, "--csv"], capture_output=True, text=True)
        lines = list(csv.reader(done.stdout.splitlines()))
        rates = {line[0]: float(line[1]) for line in lines if len(line) > 1 and line[1] != "rps"}
        if done.returncode or not rates:
            sys.exit(f"{BENCHMARK} failed: {done.stderr.strip() or 'it said nothing'}")
        return rates

    def empty(self) -> None:
        """Forget all keys, and what was counted."""
        self.client.flushall()
        self.client.config_resetstat()

    def calls(self) -> dict[str, int]:
        """Commands that were executed since, by their names."""
        stats = self.client.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}
        # redis-py's incr() sends INCRBY.
        calls["incr"] = calls.get("incr", 0) + calls.pop("incrby", 0)
        ours = {name.split("_")[0].lower() for name in SAME} - {"ping"}
        return {name: number for name, number in calls.items() if name in ours and number}

    def state(self) -> dict[str, object]:
        """What is in the server: sizes, and values where they are text; and what was executed."""
        sizes: dict[str, Callable[[str], object]] = {
            "string": self.client.get,
            "list": self.client.llen,
            "hash": self.client.hlen,
            "set": self.client.scard,
            "zset": self.client.zcard,
            "stream": self.client.xlen,
        }
        calls = self.calls()
        # How redis-benchmark numbers its keys is its own, so those of SET and MSET are left out.
        keys = sorted(key.decode() for key in self.client.scan_iter() if key[:4] != b"key:")
        held = {key.partition(":")[0]: sizes[self.client.type(key).decode()](key) for key in keys}
        return {"calls": calls, "keys": held}


def note(result: Result, rate: float, **details: Any) -> None:
    """Take a rate as the time of all commands."""
    if rate == float("inf"):
        result.reason = TOO_SHORT
    else:
        result.add(result.operations / rate, **details)


class Lines:
    """Table ``001 redis-benchmark``."""

    TABLE = "001 redis-benchmark"

    def __init__(self, server: Server, commands: int) -> None:
        self.server = server
        self.commands = commands
        self.clients = {name: redis_py(server.socket, known) for name, known in PARSERS.items()}
        # What it prints, in its order; without it, what redis-py can do.
        self.names = list(SAME)
        if server.program:
            self.names = list(server.rates(WARM))
        self.results = {
            (name, parser): Result(self.TABLE, name, parser, commands)
            for name in self.names
            for parser in (BENCHMARK, *PARSERS)
        }
        for (name, parser), result in self.results.items():
            if parser == BENCHMARK:
                result.reason = "" if server.program else MISSING
            elif self.command(name) is None:
                unknown = "this script does not know what redis-benchmark does there"
                result.reason = NO_COMMAND.get(name, unknown)

    def command(self, name: str) -> Command | None:
        return SAME.get(name.partition(" ")[0])

    def run(self, keep: bool) -> None:
        """Each contender runs all lines, beginning with an empty server."""
        states = {}
        commands = self.commands if keep else WARM
        for parser in (BENCHMARK, *PARSERS):
            show(f"{self.TABLE}: {parser}")
            if parser == BENCHMARK and not self.server.program:
                continue
            self.server.empty()
            if parser == BENCHMARK:
                rates = self.server.rates(commands)
                for name, rate in rates.items() if keep else ():
                    note(self.results[name, parser], rate)
            else:
                self.run_redis_py(parser, commands, keep)
            states[parser] = self.server.state()
        if all(self.command(name) or name in NO_COMMAND for name in self.names):
            first, *others = states.values()
            if any(other != first for other in others):
                sys.exit(f"{self.TABLE}: the work was not the same: {states}")

    def run_redis_py(self, parser: str, commands: int, keep: bool) -> None:
        client = self.clients[parser]
        for name in self.names:
            if (command := self.command(name)) is None:
                continue

            def run(command: Command = command) -> None:
                for _ in range(commands):
                    command(client)

            take(self.results[name, parser], run, self.server.process, keep)


class EmptyRows:
    """The rows that source 000 left empty."""

    def __init__(self, server: Server, commands: int) -> None:
        self.server = server
        self.results: list[tuple[Result, str, int]] = []
        for depth, pipelined in ((1, ""), (DEPTH, f" -P {DEPTH}")):
            count = commands if depth == 1 else commands * MORE // DEPTH * DEPTH
            row = f"{BENCHMARK} -c 1 -d {len(PAYLOAD)}{pipelined}"
            self.results.append((Result("000 push", row, "", count), "LPUSH", depth))
            self.results.append((Result("000 pop", f"{row} (RPOP)", "", count), "RPOP", depth))
            if depth == 1:
                of_ranges = Result("000 pop", f"{row} (LRANGE_100)", "", count)
                self.results.append((of_ranges, "LRANGE_100", 1))
        for result, _, _ in self.results:
            result.reason = "" if server.program else MISSING

    def run(self, keep: bool) -> None:
        for result, name, depth in self.results:
            if not self.server.program:
                continue
            show(f"{result.table}: {result.row}")
            self.server.empty()
            if name == "RPOP":
                items = (("LPUSH", "mylist", PAYLOAD) for _ in range(result.operations))
                mass_insert(items, server=self.server.url, transport="socket")
            options = "-t", name.lower(), "-d", str(len(PAYLOAD)), "-P", str(depth)
            rates = self.server.rates(result.operations, *options)
            self.check(result, name)
            rate = next(rates[each] for each in rates if each.partition(" ")[0] == name)
            if keep:
                note(result, rate, **({"items": 100 * result.operations} if "_" in name else {}))

    def check(self, result: Result, name: str) -> None:
        """End the program unless the server did what the row says, and no pop was of no item."""
        calls = self.server.calls()[name.partition("_")[0].lower()]
        left = self.server.client.llen("mylist")
        expected = 0 if name == "RPOP" else result.operations
        if calls != result.operations or left != expected:
            sys.exit(f"{result.row}: {calls:,} commands were executed, {left:,} items are left")


class Connections:
    """Table ``001 connections``."""

    TABLE = "001 connections"
    WAYS = ("one connection", "a connection a command", "a client a command")

    def __init__(self, server: Server, commands: int) -> None:
        self.server = server
        self.results = {
            (place, way, parser): Result(self.TABLE, f"{place}, {way}", parser, commands)
            for place in ("unix socket", "TCP")
            for way in self.WAYS
            for parser in (BENCHMARK, "hiredis")
        }
        for (_, way, parser), result in self.results.items():
            if parser == BENCHMARK:
                result.reason = "" if server.program else MISSING
                if way == self.WAYS[2]:
                    result.reason = "redis-benchmark makes its clients beforehand"

    def run(self, keep: bool) -> None:
        rates: dict[str, float] = {}
        for (place, way, parser), result in self.results.items():
            if result.reason:
                continue
            show(f"{self.TABLE}: {result.row} {parser}")
            self.server.empty()
            if parser == BENCHMARK:
                rate = self.rate(result.operations, place, way)
                rates.setdefault(place, rate)
                if keep:
                    note(result, rate)
            else:
                self.run_redis_py(result, place, way, keep)
            calls = self.server.calls().get("set", 0)
            if calls != result.operations:
                sys.exit(f"{result.row}, {parser}: {calls:,} of {result.operations:,} SETs")
            if keep and parser != BENCHMARK and place in rates:
                percent = 100 * result.rates()[-1] / rates[place]
                result.details[-1]["percent"] = percent

    def rate(self, commands: int, place: str, way: str) -> float:
        options = "-t", "set", "-k", "1" if way == self.WAYS[0] else "0"
        return self.server.rates(commands, *options, tcp=place == "TCP")["SET"]

    def run_redis_py(self, result: Result, place: str, way: str, keep: bool) -> None:
        where: dict[str, Any] = {"unix_socket_path": str(self.server.socket)}
        if place == "TCP":
            where = {"port": self.server.port}

        def over_one() -> None:
            for _ in range(result.operations):
                one.set("key:__rand_int__", DATA)

        def over_many() -> None:
            for _ in range(result.operations):
                one.set("key:__rand_int__", DATA)
                one.connection_pool.disconnect()

        def by_many() -> None:
            for _ in range(result.operations):
                with redis.Redis(**where, protocol=2) as client:
                    client.set("key:__rand_int__", DATA)

        one = redis_py(self.server.port if place == "TCP" else self.server.socket, "HiredisParser")
        run = dict(zip(self.WAYS, (over_one, over_many, by_many), strict=True))[way]
        take(result, run, self.server.process, keep)
        one.close()


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=5, fast_rounds=2)
    parser.add_argument("--commands", type=int, default=COMMANDS, help="commands of each line")
    args = parsed()
    if args.commands < WARM:
        parser.error(f"--commands is {WARM} or more")
    try:
        with Stage.open(tcp=True) as stage:
            server = Server(stage)
            lines = Lines(server, args.commands)
            empty_rows = EmptyRows(server, args.commands)
            connections = Connections(server, min(CONNECTIONS, args.commands))
            for number in range(args.rounds + 1):
                for each in (lines, empty_rows, connections):
                    each.run(keep=number > 0)
    except TransportError as error:
        sys.exit(str(error))
    show("")
    rows = [*lines.results.values(), *connections.results.values()]
    finish([*rows, *(result for result, _, _ in empty_rows.results)], args.output)


if __name__ == "__main__":
    main()
