"""The two tables of the 2018 report: pushing onto a list and popping off it, in turn.

The work is the report's: 100,000 messages of 129 bytes, over a unix socket; 1,000 are pushed, then
1,000 popped, a hundred times. The times of pushes and of pops are added up separately. Every
popped message is checked. All contenders do this once in each round.

- ``naive``: one command at a time; server and client share one core (``cores.py``).
- ``pipelining``: 1,000 commands, then their replies.
- ``LRANGE trick``: pushed in a pipeline, popped with an LRANGE of 100 and an LTRIM.
- ``1,000 per command``: LPUSH of 1,000 items and RPOP of 1,000, as ListBuffer does.
- ``redis-cli``: each command is generated and written to a ``redis-cli --pipe``; items that have
  arrived are popped meanwhile with the LRANGE trick, and the other items at the end. The report
  stopped its clock when everything was written; we stop it at the last reply. ``no generation``
  writes the same commands, made beforehand.
- ``fastresp redis-cli``: the same with ``RedisCli`` and ``pack_many``, 1,000 at a time.
- ``fastresp ListBuffer``: ``push()`` of 1,000, and ``pop(1000)`` or ``pop_arrow(1000)``.
- ``fastresp mass_insert``: one load of all 100,000, including connecting; then they are popped.

Through redis-cli the server does most of its work during the pops. So these rows of the push table
show the cost of writing, without the server's CPU time. A third table, ``000 both``, has the pushes
and pops of each contender together, with all of the server's CPU time.

``PythonParser`` is redis-py without hiredis, ``HiredisParser`` with it, ``hiredis (C)`` is
``hiredis_c.c``. The server's CPU time is that of its main thread.

    python bench/buffer.py -o buffer.json         # about 17 minutes
    python bench/buffer.py --fast --operations 5000
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from subprocess import DEVNULL, PIPE, Popen
from time import perf_counter
from typing import Any, ClassVar

import psutil
from c_client import CClient, NotAvailable, compiled
from cores import one_core
from redis_py_client import PARSERS, redis_py
from results import Result
from turns import arguments, finish, server_seconds, show

from fastresp import (
    ListBuffer,
    RedisCli,
    mass_insert,
    pack_many,
)
from fastresp.cli.demo.generators import (
    PAYLOAD,
    by_concatenation,
    by_named_format,
    by_text_substitution,
)
from fastresp.server.local_server import LocalServer, need_program

OPERATIONS = 100_000
DIVISOR = 1_000
RANGE = 100
KEY = "key"
NAIVE = "naive"
MANY = "1,000 per command"
C = "hiredis (C)"
COMMAND = ("LPUSH", KEY, PAYLOAD)


class Clock:
    """Add up the seconds of pushes and pops, and the CPU seconds of the server's main thread."""

    def __init__(self, server: psutil.Process) -> None:
        self.process = server
        self.seconds = {"push": 0.0, "pop": 0.0}
        self.server = {"push": 0.0, "pop": 0.0}

    def time(self, what: str, run: Callable[..., Any], *args: object) -> Any:
        """Add the time of a call to that of the pushes or the pops."""
        cpu, start = server_seconds(self.process), perf_counter()
        result = run(*args)
        self.seconds[what] += perf_counter() - start
        self.server[what] += server_seconds(self.process) - cpu
        return result


def process(messages: list[Any]) -> int:
    """Check every message; the report leaves this step to the reader."""
    return sum(len(message) == len(PAYLOAD) for message in messages)


class Way:
    """A way to push and to pop in turn. Some items arrive only after ``close()``.

    Attributes:
        waits: whether the server has finished the pushed commands when ``push()`` returns.
    """

    waits: ClassVar[bool] = True

    def push(self, count: int) -> None:
        raise NotImplementedError

    def pop(self, count: int) -> int:
        """Pop up to ``count`` items and check each; return the number of items."""
        raise NotImplementedError

    def close(self) -> None:
        pass

    def run(self, operations: int, clock: Clock) -> None:
        """Push and pop everything, timed."""
        popped = 0
        for _ in range(operations // DIVISOR):
            clock.time("push", self.push, DIVISOR)
            popped += clock.time("pop", self.pop, DIVISOR)
        clock.time("push", self.close)
        self.pop_rest(operations - popped, clock)

    def pop_rest(self, count: int, clock: Clock) -> None:
        """Pop until the list is empty; end the program unless there were ``count`` items."""
        while found := clock.time("pop", self.pop, DIVISOR):
            count -= found
        if count:
            sys.exit(f"{type(self).__name__}: {-count:,} more items were popped than pushed")


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
    """The LRANGE trick."""

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
    """redis-cli fed by a generator, popped with the LRANGE trick."""

    waits = False
    generate: ClassVar[Any]

    def __init__(self, client: Any, server: LocalServer) -> None:
        super().__init__(client)
        command = [need_program("cli"), "-s", str(server.socket), "--pipe"]
        self.cli = Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)

    def push(self, count: int) -> None:
        assert self.cli.stdin is not None
        write, generate = self.cli.stdin.write, type(self).generate
        for _ in range(count):
            write(generate(COMMAND).encode())

    def close(self) -> None:
        assert self.cli.stdin is not None
        self.cli.stdin.close()
        if self.cli.wait():
            sys.exit("redis-cli --pipe failed")


class Format(PlainCli):
    generate = by_named_format


class Concatenation(PlainCli):
    generate = by_concatenation


class Substitution(PlainCli):
    generate = by_text_substitution


class NoGeneration(PlainCli):
    ready = by_named_format(COMMAND).encode()

    def push(self, count: int) -> None:
        assert self.cli.stdin is not None
        write, ready = self.cli.stdin.write, self.ready
        for _ in range(count):
            write(ready)


class OurCli(Ranges):
    """fastresp, through redis-cli."""

    waits = False

    def __init__(self, client: Any, server: LocalServer) -> None:
        super().__init__(client)
        self.cli = RedisCli(server.url).__enter__()

    def push(self, count: int) -> None:
        self.cli.write(pack_many([COMMAND] * count))

    def close(self) -> None:
        self.cli.close()


class Buffer(Way):
    """fastresp, a ListBuffer."""

    def __init__(self, server: LocalServer) -> None:
        self.buffer = ListBuffer(KEY, server=server.url)
        len(self.buffer)  # connects, since the others are connected

    def push(self, count: int) -> None:
        self.buffer.push([PAYLOAD] * count)

    def pop(self, count: int) -> int:
        return process(self.buffer.pop(count))


class ArrowBuffer(Buffer):
    def pop(self, count: int) -> int:
        return len(self.buffer.pop_arrow(count))


class Load(Buffer):
    """fastresp, one load of all items."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server)
        self.url = server.url

    def run(self, operations: int, clock: Clock) -> None:
        clock.time("push", self.load, operations)
        self.pop_rest(operations, clock)

    def load(self, operations: int) -> None:
        mass_insert([COMMAND] * operations, server=self.url, transport="socket")


@dataclass
class Contender:
    """A contender, and the rows for its times.

    Attributes:
        run: runs it, or the reason why it cannot run.
        waits: whether the server's CPU time can be split between pushes and pops.
    """

    run: Callable[[int, Clock], None] | str
    push: Result | None
    pop: Result | None
    both: Result
    waits: bool = True

    def rows(self) -> list[Result]:
        return [row for row in (self.push, self.pop, self.both) if row is not None]

    def note(self, operations: int, clock: Clock) -> None:
        """Add the times of one run."""
        for what, result in (("push", self.push), ("pop", self.pop)):
            if result is not None:
                result.operations = operations
                details = {"server_cpu": clock.server[what]} if self.waits else {}
                result.add(clock.seconds[what], **details)
        self.both.operations = 2 * operations
        self.both.add(sum(clock.seconds.values()), server_cpu=sum(clock.server.values()))


def contender(
    run: Callable[[int, Clock], None] | str,
    push: str,
    pop: str,
    parser: str = "",
    waits: bool = True,
) -> Contender:
    """Make a contender with rows of these names; an empty name makes no row."""
    rows = [
        Result(f"000 {what}", name, parser, OPERATIONS) if name else None
        for what, name in (("push", push), ("pop", pop))
    ]
    return Contender(run, *rows, Result("000 both", push or pop, parser, 2 * OPERATIONS), waits)


def running(make: Callable[[], Way]) -> Callable[[int, Clock], None]:
    """Return a function that makes a way to push and pop, and runs it."""
    return lambda operations, clock: make().run(operations, clock)


def in_python(server: LocalServer) -> Iterator[Contender]:
    """Yield redis-py's ways, and fastresp's."""
    for parser in PARSERS:
        client = redis_py(server.socket, parser)
        for push, pop, kind in (
            (NAIVE, NAIVE, Naive),
            ("pipelining -P 1000", "pipelining", Pipelining),
            ("", "LRANGE trick", Ranges),
            (MANY, MANY, Many),
        ):
            make = running(lambda client=client, kind=kind: kind(client))
            yield contender(make, push, pop, parser)
        for name, kind in {
            "redis-cli, format": Format,
            "redis-cli, concatenation +": Concatenation,
            "redis-cli, substitution %": Substitution,
            "redis-cli, no generation": NoGeneration,
            "fastresp redis-cli": OurCli,
        }.items():
            if not name.startswith("fastresp") or parser == PARSERS[-1]:
                make = running(lambda client=client, kind=kind: kind(client, server))
                yield contender(make, name, "", parser, kind.waits)
    for push, pop, kind in (
        ("fastresp ListBuffer", "fastresp ListBuffer.pop", Buffer),
        ("", "fastresp ListBuffer.pop_arrow", ArrowBuffer),
        ("fastresp mass_insert", "", Load),
    ):
        yield contender(running(lambda kind=kind: kind(server)), push, pop)


def in_c(stack: ExitStack, server: LocalServer) -> Iterator[Contender]:
    """Yield the same loops in C."""
    missing = ""
    try:
        client = CClient(stack.enter_context(compiled()), server.socket)
    except NotAvailable as error:
        missing = str(error)

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
        yield contender(missing or partial(run, push, pop), push_row, pop_row, C)
    for name in ("format", "concatenation +", "substitution %", "no generation"):
        reason = "only for Python programs; redis-cli itself is in C, with hiredis"
        yield contender(reason, f"redis-cli, {name}", "", C)


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=10, fast_rounds=3)
    parser.add_argument(
        "--operations", type=int, default=OPERATIONS, help="number of pushes and of pops"
    )
    args = parsed()
    if args.operations < DIVISOR or args.operations % DIVISOR:
        parser.error(f"--operations must be a multiple of {DIVISOR:,}")
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer())
        watched = psutil.Process(server.process.pid)
        contenders = [*in_python(server), *in_c(stack, server)]
        for number in range(args.rounds + 1):
            for each in contenders:
                if isinstance(each.run, str):
                    for row in each.rows():
                        row.reason = each.run
                    continue
                show(f"round {number} of {args.rounds}: {each.both.row} {each.both.parser}")
                clock = Clock(watched)
                one_by_one = each.both.row == NAIVE
                with one_core(server.process.pid) if one_by_one else nullcontext():
                    # The warm-up round may be short.
                    each.run(args.operations if number else DIVISOR, clock)
                if number:
                    each.note(args.operations, clock)
    show("")
    rows = [row for each in contenders for row in each.rows()]
    finish(sorted(rows, key=lambda row: row.table, reverse=True), args.output)


if __name__ == "__main__":
    main()
