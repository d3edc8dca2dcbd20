"""Pings with and without a pipeline, the depth of a pipeline, scripts, and the busy loop.

- Table ``002 ping``: 10,000 PINGs over TCP, one by one and in one pipeline, as in a post of about
  2011. Its pipeline was redis-py's default, a transaction, which has a row of its own. It used
  ``time.clock()`` of Python 2, which counts CPU time without waiting: our ``client_cpu``.
- Tables ``003 depth, unix`` and ``003 depth, TCP``: the rate of PINGs over the number sent before
  their replies are read. ``socket, ready bytes`` writes ready bytes and counts the received bytes.
  fastresp has no depth to choose: it reads while it writes, and bounds the commands in flight.
- Table ``003 scripting``: 10,000 counters are read, changed (doubled, plus one) and written; the
  values are checked each time.
- Table ``003 busy loop``: the number of ``SET foo bar`` in one second, one by one, and with
  mass_insert, which writes the next command without waiting for a reply. A value is the time per
  SET.

The server and all contenders share one core (``cores.py`` says why).

    python bench/pipelining.py -o pipelining.json        # about 5 minutes
    python bench/pipelining.py --fast --commands 10000
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
from c_client import CClient, NotAvailable, compiled
from cores import one_core
from redis_py_client import redis_py
from results import Result
from turns import Contender, arguments, finish, measure, take

import fastresp
from fastresp.cli.demo.methods import Workbench

PINGS = 10_000
COUNTERS = 10_000
# PINGs of shallow pipelines; deep ones do MORE times as many, since they are faster.
COMMANDS = 20_000
MORE = 5
DEEP = 50
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
PING = b"*1\r\n$4\r\nPING\r\n"
PONG = b"+PONG\r\n"
PARSERS = {"PythonParser": "PythonParser", "hiredis": "HiredisParser"}
C = "hiredis (C)"
BUSY_S = 1

COMPUTE = "redis.call('SET', KEYS[1], string.format('%.0f', 2 * redis.call('GET', KEYS[1]) + 1))"

Contenders = list[tuple[Result, Contender]]


class Place:
    """The address of the server: the unix socket, or the port on the loopback."""

    def __init__(self, where: Path | int, program: Path | str) -> None:
        self.where = where
        self.url = f"unix://{where}" if isinstance(where, Path) else f"redis://127.0.0.1:{where}"
        # The C client, or the reason why it is missing.
        self.c = CClient(program, where) if isinstance(program, Path) else program

    def client(self, parser: str) -> Any:
        return redis_py(self.where, PARSERS[parser])

    def connected(self) -> socket.socket:
        if isinstance(self.where, Path):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(self.where))
            return connection
        connection = socket.create_connection(("127.0.0.1", self.where))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def need(found: object, expected: object, what: str) -> None:
    if found != expected:
        sys.exit(f"{what}: {found!r:.200} instead of {expected!r:.200}")


def ping_naive(client: Any, count: int) -> None:
    need(sum(client.ping() is True for _ in range(count)), count, "pings")


def ping_pipelined(client: Any, count: int, depth: int, transaction: bool = False) -> None:
    done = 0
    pipeline = client.pipeline(transaction=transaction)
    for left in range(count, 0, -depth):
        for _ in range(min(depth, left)):
            pipeline.ping()
        done += pipeline.execute().count(True)
    need(done, count, "pings")


def ping_ready(connection: socket.socket, count: int, depth: int) -> None:
    """Write ready bytes, and read as many bytes as their replies have."""
    ready, size = PING * depth, len(PONG) * depth
    buffer = memoryview(bytearray(size))
    for _ in range(count // depth):
        connection.sendall(ready)
        read = 0
        while read < size:
            got = connection.recv_into(buffer[read:])
            need(got > 0, True, "the server's connection")
            read += got
    need(bytes(buffer), PONG * depth, "the last pongs")


def ping_replies(url: str, count: int) -> None:
    replies = fastresp.iter_replies(repeat(("PING",), count), server=url)
    need(sum(reply == b"PONG" for reply in replies), count, "pings")


def ping_insert(url: str, count: int) -> None:
    commands = repeat(("PING",), count)
    report = fastresp.mass_insert(commands, server=url, transport="socket")
    need(report.replies - report.failed, count, "pings")


def c_ping(place: Place, result: Result, method: str, depth: int) -> tuple[Result, Contender]:
    """Return a contender in C, or a result with the reason why it is missing."""
    client = place.c
    if isinstance(client, str):
        result.reason = client
        return result, lambda: None
    return result, lambda: client.run(method, result.operations, depth)


def pings(place: Place, count: int) -> Contenders:
    """Return the contenders of table 002."""
    made: Contenders = []

    def row(name: str, parser: str = "") -> Result:
        return Result("002 ping", name, parser, count)

    for parser in PARSERS:
        client = place.client(parser)
        made += [
            (row("naive", parser), lambda client=client: ping_naive(client, count)),
            (
                row("pipelined", parser),
                lambda client=client: ping_pipelined(client, count, count),
            ),
            (
                row("pipelined, a transaction", parser),
                lambda client=client: ping_pipelined(client, count, count, True),
            ),
        ]
    made += [
        c_ping(place, row("naive", C), "ping", 1),
        c_ping(place, row("pipelined", C), "ping-pipeline", count),
        (row("fastresp iter_replies"), lambda: ping_replies(place.url, count)),
    ]
    return made


def depths(table: str, place: Place, commands: int) -> Contenders:
    """Return the contenders of a table of 003: at each depth, and fastresp without one."""
    made: Contenders = []
    client, connection = place.client("hiredis"), place.connected()
    many = MORE * commands
    for depth in DEPTHS:
        # Whole batches only.
        count = max(1, (commands if depth < DEEP else many) // depth) * depth

        def row(parser: str, depth: int = depth, count: int = count) -> Result:
            return Result(table, f"depth {depth}", parser, count)

        def by_redis_py(depth: int = depth, count: int = count) -> None:
            ping_pipelined(client, count, depth)

        def by_socket(depth: int = depth, count: int = count) -> None:
            ping_ready(connection, count, depth)

        made += [
            (row("redis-py (hiredis)"), by_redis_py),
            c_ping(place, row(C), "ping-pipeline", depth),
            (row("socket, ready bytes"), by_socket),
        ]
    for name, ping in (("iter_replies", ping_replies), ("mass_insert", ping_insert)):
        result = Result(table, f"fastresp {name}, no depth to choose", "", many)
        made.append((result, lambda ping=ping: ping(place.url, many)))
    return made


class Counters:
    """Ways to read, change and write counters."""

    def __init__(self, place: Place, count: int) -> None:
        self.url = place.url
        self.client = place.client("hiredis")
        self.keys = [f"counter:{index}" for index in range(count)]
        self.sha = self.client.script_load(COMPUTE)
        self.command = fastresp.Script(COMPUTE).command("{0}")

    def reset(self) -> None:
        pairs = zip(self.keys, range(len(self.keys)), strict=True)
        fastresp.mass_insert(pairs, "SET {0} {1}", server=self.url, transport="socket")

    def check(self, name: str) -> None:
        expected = [b"%d" % (2 * number + 1) for number in range(len(self.keys))]
        need(self.client.mget(self.keys), expected, name)

    def one_by_one(self) -> None:
        for key in self.keys:
            self.client.set(key, 2 * int(self.client.get(key)) + 1)

    def two_pipelines(self) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for key in self.keys:
            pipeline.get(key)
        for key, value in zip(self.keys, pipeline.execute(), strict=True):
            pipeline.set(key, 2 * int(value) + 1)
        pipeline.execute()

    def evalsha(self) -> None:
        for key in self.keys:
            self.client.evalsha(self.sha, 1, key)

    def evalsha_pipeline(self) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for key in self.keys:
            pipeline.evalsha(self.sha, 1, key)
        pipeline.execute()

    def execute_and_insert(self) -> None:
        values = fastresp.iter_replies(self.keys, "GET {0}", server=self.url)
        pairs = ((key, 2 * int(value) + 1) for key, value in zip(self.keys, values, strict=True))
        fastresp.mass_insert(pairs, "SET {0} {1}", server=self.url, transport="socket")

    def script_execute(self) -> None:
        for _ in fastresp.iter_replies(self.keys, self.command, server=self.url):
            pass

    def script_insert(self) -> None:
        fastresp.mass_insert(self.keys, self.command, server=self.url, transport="socket")

    def contenders(self) -> Contenders:
        hiredis = "hiredis"
        return [
            (Result("003 scripting", name, parser, len(self.keys)), run)
            for name, parser, run in (
                ("GET, compute, SET", hiredis, self.one_by_one),
                ("two pipelines, GETs and SETs", hiredis, self.two_pipelines),
                ("EVALSHA one by one", hiredis, self.evalsha),
                ("EVALSHA in a pipeline", hiredis, self.evalsha_pipeline),
                ("fastresp iter_replies GETs, mass_insert SETs", "", self.execute_and_insert),
                ("fastresp Script in iter_replies", "", self.script_execute),
                ("fastresp Script in mass_insert", "", self.script_insert),
            )
        ]

    def measure(self, rounds: int, server: psutil.Process) -> list[Result]:
        contenders = self.contenders()

        def checked(name: str, run: Contender) -> Contender:
            def timed() -> float:
                start = perf_counter()
                run()
                taken = perf_counter() - start
                self.check(name)
                return taken

            return timed

        checks = [(result, checked(result.row, run)) for result, run in contenders]
        measure(checks, rounds, server, between=self.reset)
        return [result for result, _ in contenders]


def sets_for(seconds: float) -> Iterator[tuple[str, str, str]]:
    """Yield commands for some time; the clock is checked every 1,000 commands."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        yield from repeat(("SET", "foo", "bar"), 1_000)


class BusyLoop:
    """FOR-ONE-SECOND: SET foo bar."""

    def __init__(self, place: Place, seconds: float) -> None:
        self.place = place
        self.seconds = seconds
        self.look = place.client("hiredis")
        row = "SET foo bar, one by one"
        self.ways: list[tuple[Result, Callable[[], tuple[float, int]]]] = []
        for parser in PARSERS:
            client = place.client(parser)
            self.ways.append((self.row(row, parser), lambda client=client: self.naive(client)))
        in_c = self.row(row, C)
        if isinstance(place.c, str):
            in_c.reason = place.c
        self.ways += [(in_c, self.in_c), (self.row("fastresp mass_insert"), self.insert)]

    def row(self, name: str, parser: str = "") -> Result:
        return Result("003 busy loop", name, parser)

    def naive(self, client: Any) -> tuple[float, int]:
        count, start = 0, perf_counter()
        end = start + self.seconds
        while perf_counter() < end:
            client.set("foo", "bar")
            count += 1
        return perf_counter() - start, count

    def in_c(self) -> tuple[float, int]:
        assert isinstance(self.place.c, CClient)
        return self.place.c.busy_loop(self.seconds)

    def insert(self) -> tuple[float, int]:
        start = perf_counter()
        commands = sets_for(self.seconds)
        report = fastresp.mass_insert(commands, server=self.place.url, transport="socket")
        return perf_counter() - start, report.replies

    def measure(self, rounds: int, server: psutil.Process) -> list[Result]:
        """Add the time per SET, after checking the server's count of SETs."""
        for number, (result, run) in ((n, way) for n in range(rounds + 1) for way in self.ways):
            if result.reason:
                continue
            self.look.config_resetstat()
            whole = Result(result.table, result.row)
            counts: list[int] = []

            def timed(
                run: Callable[[], tuple[float, int]] = run, counts: list[int] = counts
            ) -> float:
                taken, count = run()
                counts.append(count)
                return taken

            taken = take(whole, timed, server)
            executed = self.look.info("commandstats")["cmdstat_set"]["calls"]
            need(counts, [executed], f"{result.row} {result.parser}, SETs")
            if number:
                each = {name: used / executed for name, used in whole.details[0].items()}
                result.add(taken / executed, count=executed, **each)
        return [result for result, _ in self.ways]


def measured(contenders: Sequence[tuple[Result, Contender]], *args: Any) -> list[Result]:
    measure(contenders, *args)
    return [result for result, _ in contenders]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=10, fast_rounds=3)
    parser.add_argument(
        "--commands",
        type=int,
        default=COMMANDS,
        help="PINGs for a shallow pipeline; if fewer than "
        f"{PINGS:,}, the other tables shrink as well",
    )
    args = parsed()
    if args.commands < 1:
        parser.error("--commands must be 1 or more")
    with ExitStack() as stack:
        program: Path | str
        try:
            program = stack.enter_context(compiled())
        except NotAvailable as error:
            program = str(error)
        workbench = stack.enter_context(Workbench.open(tcp=True))
        tcp = Place(int(workbench.url.rpartition(":")[2]), program)
        unix = Place(workbench.server.socket, program)
        server = psutil.Process(workbench.server.process.pid)
        stack.enter_context(one_core(server.pid))
        results = measured(pings(tcp, min(PINGS, args.commands)), args.rounds, server)
        for name, place in (("unix", unix), ("TCP", tcp)):
            table = depths(f"003 depth, {name}", place, args.commands)
            results += measured(table, args.rounds, server)
        results += Counters(tcp, min(COUNTERS, args.commands)).measure(args.rounds, server)
        results += BusyLoop(tcp, BUSY_S * min(1, args.commands / PINGS)).measure(
            args.rounds, server
        )
    finish(results, args.output)


if __name__ == "__main__":
    main()
