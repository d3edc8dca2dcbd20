"""CPU time of Python clients by function class: the profiles of the 2018 report, and fastresp.

The methods of ``buffer.py`` run under cProfile with the CPU clock of the process, so waiting for
the server does not count, nor does redis-cli, a separate process. A value is the seconds of a class
of functions and all their callees (if functions of the class call one another, only the outermost
call counts). ``share`` is the percentage of the total CPU time.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable
from typing import Any

import buffer
from results import Result
from script import run_script
from servers import running
from turns import show

TABLE = "000 shares"
ITERATIONS = 100
FAST_ITERATIONS = 20

# By class: the end of the path of a function's file, and the function's name, as in pstats. "~" is
# the file of functions in C, which count only if buffer.py calls them.
CLASSES: dict[str, tuple[tuple[str, str], ...]] = {
    "processing": (("bench/shares.py", "process_message"),),
    "receiving": (
        ("redis/connection.py", "read_response"),
        ("fastresp/lists/buffer.py", "pop"),
    ),
    "sending": (
        ("redis/connection.py", "send_command"),
        ("redis/connection.py", "pack_commands"),
        ("redis/connection.py", "send_packed_command"),
        ("~", "<method 'write' of '_io.BufferedWriter' objects>"),
        ("fastresp/lists/buffer.py", "push"),
    ),
    "generation": (
        ("bench/commands.py", "by_named_format"),
        ("demo/methods.py", "by_concatenation"),
        ("bench/commands.py", "by_text_substitution"),
        ("~", "<method 'encode' of 'str' objects>"),
    ),
}

METHODS = ("naive", "pipelining", "LRANGE trick", *buffer.GENERATORS, "fastresp ListBuffer")

Function = tuple[str, int, str]


class Untimed(buffer.Clock):
    """A clock that adds nothing to the profile."""

    def time(self, what: str, run: Callable[..., Any], *args: object) -> Any:
        return run(*args)


def process_message(message: str | bytes) -> int:
    """Process a message, in place of a program's own work."""
    return len(json.loads(message)) > 0


def process(messages: list[Any]) -> int:
    return sum(process_message(message) for message in messages)


def class_of(function: Function) -> str:
    file, _, name = function
    for kind, members in CLASSES.items():
        if any(file.endswith(where) and name == known for where, known in members):
            return kind
    return ""


def seconds_of(stats: pstats.Stats) -> dict[str, float]:
    """Return the seconds of each class, except calls from functions that belong to a class."""
    seconds: dict[str, float] = {}
    for function, (_, _, _, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if not (kind := class_of(function)):
            continue
        for caller, (_, _, _, cumulative) in callers.items():
            ours = function[0] != "~" or caller[0].endswith("bench/buffer.py")
            if ours and not class_of(caller):
                seconds[kind] = seconds.get(kind, 0.0) + cumulative
    seconds["other"] = stats.total_tt - sum(seconds.values())  # type: ignore[attr-defined]
    return seconds


def profiled(way: buffer.Way, operations: int, clock: Untimed) -> dict[str, float]:
    """Push and pop as in the report; return the CPU seconds of each class."""
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    way.run(operations, clock)
    profiler.disable()
    return seconds_of(pstats.Stats(profiler))


def compare(args: argparse.Namespace) -> list[Result]:
    buffer.process = process
    results: dict[tuple[str, str, str], Result] = {}
    with running() as server:
        clock = Untimed(server.process)
        for number in range(args.rounds + 1):
            for make, push, pop, parser, _ in buffer.ways(server):
                if (name := pop if pop in METHODS else push) not in METHODS:
                    continue
                show(f"round {number} of {args.rounds}: {name} {parser}")
                operations = (args.iterations if number else 1) * buffer.DIVISOR
                seconds = profiled(make(), operations, clock)
                whole = sum(seconds.values())
                for kind, taken in seconds.items() if number else ():
                    row = Result(TABLE, f"{name}: {kind}", parser, operations)
                    results.setdefault(row.key, row).add(taken, share=100 * taken / whole)
    show("")
    return list(results.values())


if __name__ == "__main__":
    what = "times that 1,000 messages are pushed and popped"
    run_script(__doc__, compare, 2, 1, iterations=(what, ITERATIONS, FAST_ITERATIONS))
