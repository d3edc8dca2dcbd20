"""Compile the C programs of the benchmarks, and run the client: the 2018 report's loops in C."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from turns import NotAvailable, Timed

from fastresp.cli.demo.methods import PAYLOAD

SOURCE = Path(__file__).with_name("hiredis_c.c")


@contextmanager
def compiled(
    source: Path, flags: Sequence[str] = (), lacking: str = ""
) -> Iterator[Path | NotAvailable]:
    """Compile a program into a temporary folder, or return why that fails, in a ``with`` statement.

    Args:
        source: the C file.
        flags: for the compiler and the linker.
        lacking: what to say if the compilation fails.
    """
    if shutil.which("cc") is None:
        yield NotAvailable("no C compiler was found (Debian: apt install gcc)")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / source.stem
        command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source), *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        why = next((line for line in lines if "error" in line or "cannot find" in line), "")
        failed = f"{lacking or f'{source.name} does not compile'}: {why}"
        yield NotAvailable(failed) if done.returncode else program


class CClient:
    """The compiled program, and the server it uses.

    Args:
        program: the program from ``compiled_client()``, or the reason why there is none.
        where: the unix socket of the server, or its port on the loopback.
    """

    def __init__(self, program: Path | NotAvailable, where: Path | int) -> None:
        self.program = program
        self.where = where

    def run(self, method: str, items: int, batch: int) -> float:
        """Push or pop items of the list ``key``; return the seconds that the program measured."""
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
            (seconds of the pushes, seconds of the pops, the server's CPU seconds during the pushes,
            during the pops). CPU seconds are 0 where the system has no ``/proc/PID/schedstat``.
        """
        (*seconds, push_cpu, pop_cpu), counts = self._run(f"{push}/{pop}", items, batch, server)
        if counts != [items, items]:
            raise SystemExit(f"{SOURCE.name} {push}, {pop}: {counts} instead of {items} items each")
        pushing, popping = seconds
        return pushing, popping, push_cpu, pop_cpu

    def busy_loop(self, seconds: float) -> Timed:
        """Send SET foo bar one by one for some time; return the time, with the number of SETs."""
        [taken], [count] = self._run("set-milliseconds", round(seconds * 1e3), 1)
        return Timed(taken, {"count": count})

    def _run(
        self, method: str, items: int, batch: int, *more: int
    ) -> tuple[list[float], list[int]]:
        """Run the program; return the (seconds, counts) that it prints.

        Raises:
            NotAvailable: there is no program.
        """
        if isinstance(self.program, NotAvailable):
            raise self.program
        arguments = [str(self.where), method, str(items), str(batch), PAYLOAD, *map(str, more)]
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{SOURCE.name} {method} failed: {done.stderr.strip()}")
        words = done.stdout.split()
        seconds = [float(word) for word in words if "." in word]
        return seconds, [int(word) for word in words[len(seconds) :]]


def compiled_client() -> AbstractContextManager[Path | NotAvailable]:
    """Compile the program, in a ``with`` statement, or return why that fails."""
    flags = ["-lhiredis"]
    if shutil.which("pkg-config") is not None:
        command = ["pkg-config", "--cflags", "--libs", "hiredis"]
        done = subprocess.run(command, capture_output=True, text=True)
        flags = flags if done.returncode else done.stdout.split()
    return compiled(SOURCE, flags, "hiredis was not found (Debian: apt install libhiredis-dev)")
