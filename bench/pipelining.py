"""Pings with and without a pipeline, the depth of a pipeline, scripts, and the busy loop.

The server and all contenders share one core (``cores.py`` says why).
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter
from typing import Any

from c_programs import CClient, compiled_client
from cores import one_core
from results import Result
from script import run_script
from servers import PARSERS, Address, C, Server, running
from turns import Contender, Entry, Timed, measure, need, time_once

import fastresp

PINGS = 10_000
COUNTERS = 10_000
# PINGs of shallow pipelines; deep pipelines send MORE times as many, because they are faster.
COMMANDS = 20_000
MORE = 5
DEEP = 50
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
PING = b"*1\r\n$4\r\nPING\r\n"
PONG = b"+PONG\r\n"
BUSY_S = 1

COMPUTE = "redis.call('SET', KEYS[1], string.format('%.0f', 2 * redis.call('GET', KEYS[1]) + 1))"


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
    """Write encoded commands, and read as many bytes as their replies have."""
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


def pings(address: Address, native: CClient, count: int) -> list[Entry]:
    made: list[tuple[str, str, Contender]] = []
    for parser in PARSERS:
        client = address.client(parser)

        def pipelined(transaction: bool = False, client: Any = client) -> None:
            ping_pipelined(client, count, count, transaction)

        made += [
            ("naive", parser, lambda client=client: ping_naive(client, count)),
            ("pipelined", parser, pipelined),
            ("pipelined, a transaction", parser, lambda run=pipelined: run(transaction=True)),
        ]
    made += [
        ("naive", C, lambda: native.run("ping", count, 1)),
        ("pipelined", C, lambda: native.run("ping-pipeline", count, count)),
        ("fastresp iter_replies", "", lambda: ping_replies(address.url, count)),
    ]
    return [(Result("002 ping", name, parser, count), run) for name, parser, run in made]


def depths(table: str, address: Address, native: CClient, commands: int) -> list[Entry]:
    """Return the contenders of a table of ``003 depth``: at each depth, and without one."""
    client, connection = address.client(), address.connect()
    many = MORE * commands

    def at(depth: int) -> list[Entry]:
        # Whole batches only.
        count = max(1, (commands if depth < DEEP else many) // depth) * depth
        runs: dict[str, Contender] = {
            "redis-py (hiredis)": lambda: ping_pipelined(client, count, depth),
            C: lambda: native.run("ping-pipeline", count, depth),
            "socket, ready bytes": lambda: ping_ready(connection, count, depth),
        }
        return [
            (Result(table, f"depth {depth}", parser, count), run) for parser, run in runs.items()
        ]

    made = [entry for depth in DEPTHS for entry in at(depth)]
    for name, ping in (("iter_replies", ping_replies), ("mass_insert", ping_insert)):
        result = Result(table, f"fastresp {name}, no depth to choose", "", many)
        made.append((result, lambda ping=ping: ping(address.url, many)))
    return made


class Counters:
    """Ways to read, change and write counters."""

    def __init__(self, address: Address, count: int) -> None:
        self.url = address.url
        self.client = address.client()
        self.keys = [f"counter:{index}" for index in range(count)]
        self.sha = self.client.script_load(COMPUTE)
        self.command = fastresp.Script(COMPUTE).command("{0}")

    def reset(self, row: Result) -> None:
        pairs = zip(self.keys, range(len(self.keys)), strict=True)
        fastresp.mass_insert(pairs, "SET {0} {1}", server=self.url, transport="socket")

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

    def check(self, row: Result) -> None:
        expected = [b"%d" % (2 * number + 1) for number in range(len(self.keys))]
        need(self.client.mget(self.keys), expected, row.row)

    def contenders(self) -> list[Entry]:
        return [
            (Result("003 scripting", name, parser, len(self.keys)), run)
            for name, parser, run in (
                ("GET, compute, SET", "hiredis", self.one_by_one),
                ("two pipelines, GETs and SETs", "hiredis", self.two_pipelines),
                ("EVALSHA one by one", "hiredis", self.evalsha),
                ("EVALSHA in a pipeline", "hiredis", self.evalsha_pipeline),
                ("fastresp iter_replies GETs, mass_insert SETs", "", self.execute_and_insert),
                ("fastresp Script in iter_replies", "", self.script_execute),
                ("fastresp Script in mass_insert", "", self.script_insert),
            )
        ]


def sets_for(seconds: float) -> Iterator[tuple[str, str, str]]:
    """Yield commands for some time; the clock is checked every 1,000 commands."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        yield from repeat(("SET", "foo", "bar"), 1_000)


def busy_loop(address: Address, native: CClient, server: Server, seconds: float) -> list[Entry]:
    """Return the contenders of FOR-ONE-SECOND: SET foo bar. A value is the time per SET."""

    def naive(client: Any) -> Timed:
        count, start = 0, perf_counter()
        end = start + seconds
        while perf_counter() < end:
            client.set("foo", "bar")
            count += 1
        return Timed(perf_counter() - start, {"count": count})

    def insert() -> Timed:
        start = perf_counter()
        commands = sets_for(seconds)
        report = fastresp.mass_insert(commands, server=address.url, transport="socket")
        return Timed(perf_counter() - start, {"count": report.replies})

    def per_set(name: str, parser: str, run: Callable[[], Timed]) -> Entry:
        def loop() -> Timed:
            server.client.config_resetstat()
            taken, details = time_once(run, server.process)
            executed = server.client.info("commandstats")["cmdstat_set"]["calls"]
            need(details.pop("count"), executed, f"{name} {parser}, SETs")
            cpu = {name: seconds / executed for name, seconds in details.items()}
            return Timed(taken / executed, cpu | {"count": executed})

        return Result("003 busy loop", name, parser), loop

    row = "SET foo bar, one by one"
    clients = [(parser, address.client(parser)) for parser in PARSERS]
    return [
        *(per_set(row, parser, lambda client=client: naive(client)) for parser, client in clients),
        per_set(row, C, lambda: native.busy_loop(seconds)),
        per_set("fastresp mass_insert", "", insert),
    ]


def compare(args: argparse.Namespace) -> list[Result]:
    with compiled_client() as program, running() as server, one_core(server.process.pid):
        tcp, rounds = server.tcp, args.rounds
        native = CClient(program, tcp.where)
        contenders = pings(tcp, native, min(PINGS, args.commands))
        results = measure(contenders, rounds, server.process)
        for name, address in (("unix", server.unix), ("TCP", tcp)):
            client = CClient(program, address.where)
            contenders = depths(f"003 depth, {name}", address, client, args.commands)
            results += measure(contenders, rounds, server.process)
        counters = Counters(tcp, min(COUNTERS, args.commands))
        results += measure(
            counters.contenders(),
            rounds,
            server.process,
            before=counters.reset,
            after=counters.check,
        )
        contenders = busy_loop(tcp, native, server, BUSY_S * min(1, args.commands / PINGS))
        return [*results, *measure(contenders, rounds, server.process)]


if __name__ == "__main__":
    what = f"PINGs for a shallow pipeline; if fewer than {PINGS:,}, the other tables shrink as well"
    run_script(__doc__, compare, 10, 3, commands=(what, COMMANDS))
