"""Compile and run the 2018 report's loops in C, with the client library hiredis.

As a script, the module runs each loop once: with a server on a unix socket, and 129-byte values.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import compiling
from turns import NotAvailable

from fastresp.cli.demo.methods import PAYLOAD
from fastresp.server.local_server import LocalServer

SOURCE = Path(__file__).with_name("hiredis_c.c")
# Each with its batch size; the second of a pair pops the items pushed by the first.
LOOPS = (
    *(("ping", 1), ("ping-pipeline", 1_000)),
    *(("lpush", 1), ("rpop", 1)),
    *(("lpush-pipeline", 1_000), ("rpop-pipeline", 1_000)),
    *(("lpush-pipeline", 1_000), ("lrange", 100)),
    *(("lpush-pipeline", 1_000), ("lrange", 1_000)),
    *(("lpush-many", 1_000), ("lrange-pipeline", 1_000)),
    *(("lpush-many", 1_000), ("rpop-many", 1_000)),
)


class CClient:
    """The compiled program, and the server it uses.

    Args:
        program: the program from ``compiled()``, or the reason why there is none.
        where: the unix socket of the server, or its port on the loopback.
    """

    def __init__(self, program: Path | NotAvailable, where: Path | int) -> None:
        self.program = program
        self.where = where

    def run(self, method: str, items: int, batch: int) -> float:
        """Push or pop items of the list ``key``; return the seconds the program measured."""
        [seconds], [count] = self._run(method, items, batch)
        if count != items:
            raise SystemExit(f"{SOURCE.name} {method} handled {count} of {items} items")
        return seconds

    def run_in_turn(
        self, push: str, pop: str, items: int, batch: int, server: int
    ) -> tuple[float, float, float, float]:
        """Push and pop items, a batch of each in turn.

        Args:
            server: the process id of the server.

        Returns:
            Seconds of the pushes and the pops, and the CPU seconds of the server's main thread in
            both; these are 0 where the system has no ``/proc/PID/schedstat``.
        """
        (*seconds, push_cpu, pop_cpu), counts = self._run(f"{push}/{pop}", items, batch, server)
        if counts != [items, items]:
            raise SystemExit(f"{SOURCE.name} {push}, {pop}: {counts} instead of {items} items each")
        pushing, popping = seconds
        return pushing, popping, push_cpu, pop_cpu

    def busy_loop(self, seconds: float) -> tuple[float, int]:
        """Send SET foo bar one by one for some time; return the seconds taken, and the count."""
        [taken], [count] = self._run("set-milliseconds", round(seconds * 1e3), 1)
        return taken, count

    def _run(
        self, method: str, items: int, batch: int, *more: int
    ) -> tuple[list[float], list[int]]:
        """Return the seconds and the counts that the program prints, if there is one."""
        if isinstance(self.program, NotAvailable):
            raise self.program
        arguments = [str(self.where), method, str(items), str(batch), PAYLOAD, *map(str, more)]
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{SOURCE.name} {method} failed: {done.stderr.strip()}")
        words = done.stdout.split()
        seconds = [float(word) for word in words if "." in word]
        return seconds, [int(word) for word in words[len(seconds) :]]


def compiled() -> AbstractContextManager[Path | NotAvailable]:
    """Compile the program, in a ``with`` statement, or return why that fails."""
    lacking = "hiredis was not found (Debian: apt install libhiredis-dev)"
    return compiling.compiled(SOURCE, _hiredis_flags(), lacking)


def _hiredis_flags() -> list[str]:
    command = ["pkg-config", "--cflags", "--libs", "hiredis"]
    if shutil.which("pkg-config") is not None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split()
    return ["-lhiredis"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000, help="items in each loop")
    args = parser.parse_args()
    with compiled() as program, LocalServer() as server:
        client = CClient(program, server.socket)
        for method, batch in LOOPS:
            seconds = client.run(method, args.items, batch)
            rate = args.items / seconds
            print(f"{method:15}{batch:7,} at a time {seconds:9.3f} s {rate:12,.0f}/s")


if __name__ == "__main__":
    main()
