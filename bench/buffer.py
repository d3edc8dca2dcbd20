"""The two tables of the 2018 report: pushing to a list and popping from it, in turn.

In each round, each contender pushes 1,000 messages and pops 1,000, a hundred times. The times of
pushes and of pops are added up separately. Every popped message is checked.

With redis-cli, the server does most of its work during the pops. So in the push table, the rows of
redis-cli show the cost of writing, without the server's CPU time. A third table, ``000 both``, has
the pushes and pops of each contender together, with all of the server's CPU time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from subprocess import DEVNULL, PIPE, Popen
from time import perf_counter
from typing import Any

import psutil
from c_programs import CClient, compiled_client
from commands import by_named_format, by_text_substitution
from cores import one_core
from results import Result
from script import run_script
from servers import C, Server, running
from turns import NotAvailable, server_seconds, show

from fastresp import ListBuffer, RedisCli, mass_insert, pack_many
from fastresp.cli.demo.methods import PAYLOAD, by_concatenation
from fastresp.server.local_server import need_program

OPERATIONS = 100_000
DIVISOR = 1_000
RANGE = 100
KEY = "key"
NAIVE = "naive"
MANY = "1,000 per command"
# The names of the report, which calls hiredis HiredisParser.
PARSERS = ("PythonParser", "HiredisParser")
COMMAND = ("LPUSH", KEY, PAYLOAD)
# Functions that generate a command for redis-cli; None: commands made beforehand are written.
GENERATORS: dict[str, Callable[[Any], str] | None] = {
    "redis-cli, format": by_named_format,
    "redis-cli, concatenation +": by_concatenation,
    "redis-cli, substitution %": by_text_substitution,
    "redis-cli, no generation": None,
}


class Clock:
    """Add up the seconds of pushes and pops, and the CPU seconds of the server's main thread."""

    def __init__(self, server: psutil.Process) -> None:
        self.process = server
        self.seconds = {"push": 0.0, "pop": 0.0}
        self.server = {"push": 0.0, "pop": 0.0}

    def time(self, what: str, run: Callable[..., Any], *args: object) -> Any:
        cpu, start = server_seconds(self.process), perf_counter()
        result = run(*args)
        self.seconds[what] += perf_counter() - start
        self.server[what] += server_seconds(self.process) - cpu
        return result


def process(messages: list[Any]) -> int:
    """Check every message; the report leaves this step to the reader."""
    return sum(len(message) == len(PAYLOAD) for message in messages)


class Way:
    """A way to push and to pop in turn; pushed items may arrive only after ``close()``."""

    def push(self, count: int) -> None:
        raise NotImplementedError

    def pop(self, count: int) -> int:
        """Pop up to ``count`` items and check each; return the number of items."""
        raise NotImplementedError

    def close(self) -> None:
        pass

    def run(self, operations: int, clock: Clock) -> None:
        popped = 0
        for _ in range(operations // DIVISOR):
            clock.time("push", self.push, DIVISOR)
            popped += clock.time("pop", self.pop, DIVISOR)
        clock.time("push", self.close)
        self.pop_rest(operations - popped, clock)

    def pop_rest(self, count: int, clock: Clock) -> None:
        """Pop until the list is empty; end the program unless ``count`` items were popped."""
        while found := clock.time("pop", self.pop, DIVISOR):
            count -= found
        if count:
            sys.exit(f"{type(self).__name__}: {count:,} items are missing")


class Naive(Way):
    def __init__(self, client: Any) -> None:
        self.client = client

    def push(self, count: int) -> None:
        for _ in range(count):
            self.client.lpush(KEY, PAYLOAD)

    def pop(self, count: int) -> int:
        return sum(process([item]) for _ in range(count) if (item := self.client.rpop(KEY)))


class Pipelining(Naive):
    def push(self, count: int) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for _ in range(count):
            pipeline.lpush(KEY, PAYLOAD)
        pipeline.execute()

    def pop(self, count: int) -> int:
        pipeline = self.client.pipeline(transaction=False)
        for _ in range(count):
            pipeline.rpop(KEY)
        return process([item for item in pipeline.execute() if item])


class Ranges(Pipelining):
    """Pop by LRANGE and LTRIM of 100 items."""

    def pop(self, count: int) -> int:
        popped = 0
        for _ in range(count // RANGE):
            pipeline = self.client.pipeline(transaction=False)
            pipeline.lrange(KEY, -RANGE, -1).ltrim(KEY, 0, -RANGE - 1)
            items, _ = pipeline.execute()
            popped += process(items)
            if len(items) < RANGE:
                break
        return popped


class Many(Naive):
    """1,000 items per command."""

    def push(self, count: int) -> None:
        self.client.lpush(KEY, *[PAYLOAD] * count)

    def pop(self, count: int) -> int:
        return process(self.client.rpop(KEY, count) or [])


class PlainCli(Ranges):
    """Push by redis-cli, fed by a generator; pop by LRANGE and LTRIM."""

    ready = by_named_format(COMMAND).encode()

    def __init__(self, client: Any, server: Server, generate: Callable[[Any], str] | None) -> None:
        super().__init__(client)
        self.generate = generate
        command = [need_program("cli"), "-s", str(server.local.socket), "--pipe"]
        self.cli = Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)

    def push(self, count: int) -> None:
        assert self.cli.stdin is not None
        write, generate, ready = self.cli.stdin.write, self.generate, self.ready
        if generate is None:
            for _ in range(count):
                write(ready)
            return
        for _ in range(count):
            write(generate(COMMAND).encode())

    def close(self) -> None:
        assert self.cli.stdin is not None
        self.cli.stdin.close()
        if self.cli.wait():
            sys.exit("redis-cli --pipe failed")


class OurCli(Ranges):
    """fastresp, through redis-cli."""

    def __init__(self, client: Any, server: Server) -> None:
        super().__init__(client)
        self.cli = RedisCli(server.url).__enter__()

    def push(self, count: int) -> None:
        self.cli.write(pack_many([COMMAND] * count))

    def close(self) -> None:
        self.cli.close()


class Buffer(Way):
    """fastresp, a ListBuffer."""

    def __init__(self, server: Server) -> None:
        self.buffer = ListBuffer(KEY, server=server.url)
        len(self.buffer)  # connects; the other contenders are already connected

    def push(self, count: int) -> None:
        self.buffer.push([PAYLOAD] * count)

    def pop(self, count: int) -> int:
        return process(self.buffer.pop(count))


class ArrowBuffer(Buffer):
    def pop(self, count: int) -> int:
        return len(self.buffer.pop_arrow(count))


class Load(Buffer):
    """fastresp, one load of all items."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.url = server.url

    def run(self, operations: int, clock: Clock) -> None:
        commands = [COMMAND] * operations
        load = partial(mass_insert, commands, server=self.url, transport="socket")
        clock.time("push", load)
        self.pop_rest(operations, clock)


@dataclass
class Contender:
    """A contender, and the rows for its times.

    Attributes:
        run: pushes and pops, or the reason why it can't.
        push: the name of its row of pushes; an empty name makes no row.
        pop: the name of its row of pops.
        waits: whether the server has finished the pushed commands when a push returns, so that the
            server's CPU time can be split between pushes and pops.
    """

    run: Callable[[int, Clock], object] | str
    push: str
    pop: str
    parser: str = ""
    waits: bool = True

    def __post_init__(self) -> None:
        names = {"push": self.push, "pop": self.pop, "both": self.push or self.pop}
        reason = self.run if isinstance(self.run, str) else ""
        self.rows = {
            what: Result(f"000 {what}", name, self.parser, OPERATIONS, reason=reason)
            for what, name in names.items()
            if name
        }

    def note(self, operations: int, clock: Clock) -> None:
        for what, row in self.rows.items():
            parts = ("push", "pop") if what == "both" else (what,)
            row.operations = len(parts) * operations
            used = {"server_cpu": sum(clock.server[part] for part in parts)}
            seconds = sum(clock.seconds[part] for part in parts)
            details = used if self.waits or what == "both" else {}
            row.add(seconds, round=len(row.values) + 1, **details)


def ways(server: Server) -> Iterator[tuple[Callable[[], Way], str, str, str, bool]]:
    """Yield the ways in Python: how to make one, and the other attributes of its contender."""
    for parser in PARSERS:
        client = server.unix.client(parser)
        for push, pop, kind in (
            (NAIVE, NAIVE, Naive),
            ("pipelining -P 1000", "pipelining", Pipelining),
            ("", "LRANGE trick", Ranges),
            (MANY, MANY, Many),
        ):
            yield partial(kind, client), push, pop, parser, True
        for name, generate in GENERATORS.items():
            yield partial(PlainCli, client, server, generate), name, "", parser, False
    yield partial(OurCli, client, server), "fastresp redis-cli", "", parser, False
    for push, pop, ours in (
        ("fastresp ListBuffer", "fastresp ListBuffer.pop", Buffer),
        ("", "fastresp ListBuffer.pop_arrow", ArrowBuffer),
        ("fastresp mass_insert", "", Load),
    ):
        yield partial(ours, server), push, pop, "", True


def in_python(server: Server) -> Iterator[Contender]:
    for make, *about in ways(server):
        yield Contender(lambda operations, clock, make=make: make().run(operations, clock), *about)


def in_c(client: CClient) -> Iterator[Contender]:

    def run(push: str, pop: str, operations: int, clock: Clock) -> None:
        pid = clock.process.pid
        pushing, popping, *cpu = client.run_in_turn(push, pop, operations, DIVISOR, pid)
        clock.seconds = {"push": pushing, "pop": popping}
        clock.server = dict(zip(("push", "pop"), cpu, strict=True))

    for push_row, pop_row, push, pop in (
        (NAIVE, NAIVE, "lpush", "rpop"),
        ("pipelining -P 1000", "pipelining", "lpush-pipeline", "rpop-pipeline"),
        ("", "LRANGE trick", "lpush-pipeline", "lrange"),
        (MANY, MANY, "lpush-many", "rpop-many"),
    ):
        yield Contender(partial(run, push, pop), push_row, pop_row, C)
    for name in GENERATORS:
        reason = "only for Python programs; redis-cli itself is in C, with hiredis"
        yield Contender(reason, name, "", C)


def compare(args: argparse.Namespace) -> list[Result]:
    if args.operations % DIVISOR:
        raise SystemExit(f"--operations must be a multiple of {DIVISOR:,}")
    with running() as server, compiled_client() as program:
        contenders = [*in_python(server), *in_c(CClient(program, server.unix.where))]
        for number in range(args.rounds + 1):
            for each in contenders:
                row = each.rows["both"]
                if row.reason or isinstance(each.run, str):
                    continue
                show(f"round {number} of {args.rounds}: {row.row} {row.parser}")
                clock = Clock(server.process)
                try:
                    with one_core(server.process.pid) if row.row == NAIVE else nullcontext():
                        # The warm-up round may be short.
                        each.run(args.operations if number else DIVISOR, clock)
                except NotAvailable as error:
                    for row in each.rows.values():
                        row.reason = str(error)
                else:
                    if number:
                        each.note(args.operations, clock)
    show("")
    rows = [row for each in contenders for row in each.rows.values()]
    return sorted(rows, key=lambda row: row.table, reverse=True)


if __name__ == "__main__":
    run_script(__doc__, compare, 10, 3, operations=("pushes and pops", OPERATIONS))
