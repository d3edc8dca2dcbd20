"""Run sinks, servers that count commands and store nothing (``sink.c``), for ``scale.py``."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Self

import redis
from turns import NotAvailable

from fastresp.resp.slots import SLOTS

SINK = Path(__file__).with_name("sink.c")
# A connection waits here until its sink has started.
BACKLOG = 128
END_S = 10


class Sinks:
    """Run sinks on the loopback, in a ``with`` statement.

    Args:
        program: the compiled ``sink.c``, or why it is missing.
        nodes: number of sinks in a cluster; 0 for a single one without a cluster.

    Attributes:
        url: URL of the first sink.
        pids: process IDs of all sinks.
        printed: at the end, the output of each sink.

    Raises:
        NotAvailable: there is no program.
        SystemExit: at the end, if a sink has found an error in its input.
    """

    def __init__(self, program: Path | NotAvailable, nodes: int = 0) -> None:
        if isinstance(program, NotAvailable):
            raise program
        self.program = program
        self.nodes = nodes

    def __enter__(self) -> Self:
        self.processes: list[Popen[str]] = []
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        self.pids = [process.pid for process in self.processes]
        self.url = f"redis://127.0.0.1:{self.ports[0]}"
        return self

    def _start(self) -> None:
        with ExitStack() as stack:  # closes our copies of the sockets
            sockets = [
                stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=BACKLOG))
                for _ in range(max(self.nodes, 1))
            ]
            self.ports = [each.getsockname()[1] for each in sockets]
            first = [number * SLOTS // len(sockets) for number in range(len(sockets) + 1)]
            slots = [
                f"{first[number]}-{first[number + 1] - 1}={port}"
                for number, port in enumerate(self.ports[: self.nodes])
            ]
            for each in sockets:
                self.processes.append(
                    Popen([self.program, *slots], stdin=each, stdout=PIPE, stderr=PIPE, text=True)
                )

    def __exit__(self, *error: object) -> None:
        self.printed: list[str] = []
        complaints = []
        for process in self.processes:
            process.terminate()
            printed, words = process.communicate(timeout=END_S)
            self.printed.append(printed)
            if process.returncode:
                complaints.append(words.strip() or f"exit code {process.returncode}")
        if complaints:
            raise SystemExit("; ".join(complaints))

    def received(self) -> tuple[int, int]:
        """Return the numbers of commands and bytes that all sinks have received so far."""
        commands = size = 0
        for port in self.ports:
            with redis.Redis(port=port, protocol=2) as client:
                info: Any = client.info()
            commands += info["sink_commands"]
            size += info["sink_bytes"]
        return commands, size
