"""Measure how fast each method loads a temporary server.

Three methods generate RESP in pure Python, as the code in the 2018 benchmark report does. The
report's code counts characters where RESP counts bytes, and accepts at most three arguments; its
code with ``%`` omits the ``*`` and ``$``. The generators here accept any text and any number of
arguments, and are the fastest forms that we know for three arguments, as in the report.
"""

from __future__ import annotations

import re
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import IO, Any, TypeAlias

from ...outcome.errors import TransportError
from ...server.file_io import needed_for
from ...server.local_server import (
    LocalServer,
    end_group,
    find_program,
    is_in_wheel,
    need_program,
    output_of,
)

__all__ = [
    "CHUNK_BYTES", "GENERATORS", "PAYLOAD", "READY_FILE", "Announce", "Client", "Comparison",
    "Generator", "Methods", "PlainCli", "Workbench", "by_concatenation", "by_substitution",
    "chunks", "debug_options",
]  # fmt: skip

READY_FILE = "no generation"
# Seconds after which a load or a check counts as stuck.
STUCK_S = 300.0

Announce: TypeAlias = Callable[[str], object]
Methods: TypeAlias = dict[str, Callable[[], object]]
# The 129-byte message of every benchmark in the report.
PAYLOAD = (
    '{"origin": null, "channel": 0, "content": '
    '"redis@tshark_save:53619abd-a27c-432c-8f8d-1d059aab5f24", "size": 54, "redirect": true}'
)
CHUNK_BYTES = 1 << 20
# Number of commands to estimate the size of a command.
FIRST_COMMANDS = 64

FORMAT_3 = "*3\r\n${}\r\n{}\r\n${}\r\n{}\r\n${}\r\n{}\r\n"
SUBSTITUTE_3 = b"*3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"


@dataclass(frozen=True)
class Timing:
    """The times of one load.

    Attributes:
        seconds: wall time from the start of the client to the last reply.
        server_seconds: CPU time of the server during the load, user and system.
        client_seconds: CPU time of this process and its finished children during the load.
    """

    seconds: float
    server_seconds: float
    client_seconds: float


@dataclass(frozen=True)
class Client:
    """A command-line client.

    Attributes:
        name: ``redis-cli`` or ``valkey-cli``.
        version: the version, such as ``7.0.15``; empty if unknown.
        from_wheel: whether the program is from a wheel, which is used only if none is on PATH.
    """

    name: str
    version: str
    from_wheel: bool


@dataclass
class Comparison:
    """The timings of all methods. Each method runs one load per round.

    Attributes:
        server: name and version of the server.
        commands: number of commands in each load.
        timings: for each method, one timing per round.
        client: the program that ``PlainCli`` runs; None if it is not installed.
    """

    server: str
    commands: int
    timings: dict[str, list[Timing]]
    client: Client | None

    @property
    def rounds(self) -> int:
        return min(map(len, self.timings.values()))

    def seconds(self, method: str) -> float:
        """Return the median wall time of a method."""
        return median(timing.seconds for timing in self.timings[method])

    def server_seconds(self, method: str) -> float:
        """Return the median CPU time of the server for a method."""
        return median(timing.server_seconds for timing in self.timings[method])


class PlainCli:
    """Runs ``redis-cli --pipe`` as a script would.

    Raises:
        TransportError: redis-cli was not found or failed, or the server replied with errors.
    """

    def __init__(self, server: LocalServer, port: int | None = None) -> None:
        self.program = need_program("cli")
        where = ["-s", str(server.socket)]
        if port is not None:
            where = ["-h", "127.0.0.1", "-p", str(port)]
        self.command = [self.program, *where, "--pipe"]
        # Not a pipe, which many error replies would fill, so that redis-cli would block.
        self.output = server.folder / "redis-cli-output"

    def identity(self) -> Client:
        output = output_of(self.program, "--version").decode(errors="replace")
        found = re.search(r"((?:redis|valkey)-cli) (\d[\w.]*)", output)
        name, version = found.groups() if found else (Path(self.program).name, "")
        return Client(name, version, is_in_wheel(self.program))

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Write RESP to redis-cli's standard input, and wait for the last reply."""
        with self._running(subprocess.PIPE) as process:
            assert process.stdin is not None
            with process.stdin as stdin:
                stdin.writelines(pieces)

    def load_file(self, path: Path) -> None:
        """Load a file of RESP: ``redis-cli --pipe < path``."""
        with open(path, "rb") as ready, self._running(ready):
            pass

    @contextmanager
    def _running(self, stdin: int | IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Run redis-cli during the block, then wait until it ends; kill it after STUCK_S."""
        with needed_for(f"{self.program} can't be started"), open(self.output, "wb") as output:
            process = subprocess.Popen(
                self.command, stdin=stdin, stdout=output, stderr=output, process_group=0
            )
        end = time.monotonic() + STUCK_S
        stuck = threading.Timer(STUCK_S, end_group, [process])
        stuck.daemon = True
        stuck.start()
        try:
            with suppress(BrokenPipeError):  # redis-cli's error message is read below
                yield process
            process.wait()
        finally:
            stuck.cancel()
            end_group(process)
        if process.returncode:
            printed = self.output.read_bytes()[-500:].decode(errors="replace").strip()
            why = printed or "it printed nothing"
            if time.monotonic() >= end:
                why = f"it did not end within {STUCK_S:g} s, and was killed: {why}"
            raise TransportError(f"{self.program} --pipe failed: {why}")


class Workbench:
    """A temporary server, a plain redis-cli to load it, and a redis-py client to check it.

    Attributes:
        url: the server's unix socket, or its TCP port.
        cli: the plain redis-cli; None if it is not installed.
    """

    def __init__(self, server: LocalServer, client: Any, port: int | None = None) -> None:
        self.server = server
        self.url = server.url if port is None else f"redis://127.0.0.1:{port}"
        self.client = client
        self.cli = PlainCli(server, port) if find_program("cli") else None
        self.ready_file = server.folder / "ready.resp"

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[Workbench]:
        """Start the server for the block; then end it, and remove its folder.

        Raises:
            TransportError: the server is missing, or did not start.
        """
        import redis

        with (
            LocalServer(*debug_options()) as server,
            # DEBUG DIGEST is slow if there is much data.
            redis.Redis.from_url(server.url, socket_timeout=STUCK_S) as client,
        ):
            yield cls(server, client)

    def plain_methods(self, commands: Callable[[], Iterable[Sequence[str]]]) -> Methods:
        """Return the methods that use redis-cli: with each generator, and with a RESP file."""
        cli = self.cli
        if cli is None:
            return {}

        def feeding(generate: Callable[[Any], Any]) -> Callable[[], None]:
            return lambda: cli.feed(chunks(generate, commands()))

        methods: Methods = {name: feeding(generate) for name, generate in GENERATORS.items()}
        return methods | {READY_FILE: lambda: cli.load_file(self.ready_file)}

    def compare(
        self,
        methods: Methods,
        commands: int,
        rounds: int,
        *,
        check: Callable[[str], None],
        announce: Announce,
        budget_s: float,
        warm_up: str | None = None,
    ) -> Comparison:
        """Time the methods in turn, in several rounds. Each load starts with an empty server.

        Args:
            methods: functions that load the data, by name.
            commands: number of commands in each load.
            rounds: maximum number of rounds; the first round always runs.
            check: called with the method's name after each load, to check the data.
            announce: called with the progress, between timed parts.
            budget_s: maximum seconds; no round is started that would exceed them.
            warm_up: the method to run before the first round, untimed; None for the first method.
        """
        timings: dict[str, list[Timing]] = {method: [] for method in methods}
        start = time.monotonic()
        first = warm_up or next(iter(methods))
        announce(f"warming up: loading {commands:,} commands by {first}, untimed")
        # The first load makes the server allocate memory that later loads reuse.
        self._timed(methods[first])
        for index in range(rounds):
            for method, load in methods.items():
                announce(f"round {index + 1}: loading {commands:,} commands by {method}")
                timings[method].append(self._timed(load))
                announce(f"round {index + 1}: checking the data of {method}")
                check(method)
            if (time.monotonic() - start) * (index + 2) / (index + 1) > budget_s:
                break
        client = self.cli.identity() if self.cli else None
        return Comparison(self._server_name(), commands, timings, client)

    def _timed(self, load: Callable[[], object]) -> Timing:
        """Empty the server, then time a load."""
        # Without SYNC, Valkey would free the old data in a thread during the load.
        self.client.execute_command("FLUSHALL", "SYNC")
        server_seconds, client_seconds = self._server_seconds(), _client_seconds()
        start = time.perf_counter()
        load()
        seconds = time.perf_counter() - start
        client_seconds = _client_seconds() - client_seconds
        return Timing(seconds, self._server_seconds() - server_seconds, client_seconds)

    def _server_seconds(self) -> float:
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def _server_name(self) -> str:
        info = self.client.info("server")
        product = "Valkey" if "valkey_version" in info else "Redis"
        return f"{product} {info[f'{product.lower()}_version']}"


def _client_seconds() -> float:
    """Return the CPU time of this process and its finished children."""
    scopes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(scope) for scope in scopes]
    return sum(each.ru_utime + each.ru_stime for each in used)


def debug_options() -> list[str]:
    """Return the server options that enable DEBUG; empty before 7.0, where it is always on."""
    program = find_program("server")
    if program is None:
        return []  # LocalServer raises a clearer error
    major = re.search(rb"v=(\d+)", output_of(program, "--version"))
    return ["--enable-debug-command", "yes"] if major and int(major[1]) >= 7 else []


def by_format(command: Sequence[str]) -> str:
    """Write a command with ``str.format``."""
    if len(command) == 3:
        name, key, value = command
        # Checking for ASCII first is 5% faster than encoding each argument for its length; a
        # helper function would cost more than that.
        return FORMAT_3.format(
            len(name) if name.isascii() else len(name.encode()),
            name,
            len(key) if key.isascii() else len(key.encode()),
            key,
            len(value) if value.isascii() else len(value.encode()),
            value,
        )
    count = len(command)
    # Assigning lengths and arguments by slices takes two thirds as long as a loop.
    values: list[Any] = [count] * (2 * count + 1)
    values[1::2] = [len(arg) if arg.isascii() else len(arg.encode()) for arg in command]
    values[2::2] = command
    return ("*{}\r\n" + "${}\r\n{}\r\n" * count).format(*values)


def by_concatenation(command: Sequence[str]) -> str:
    """Write a command with ``+``."""
    if len(command) == 3:
        name, key, value = command
        resp = "*3\r\n$" + str(len(name) if name.isascii() else len(name.encode()))
        resp += "\r\n" + name + "\r\n$" + str(len(key) if key.isascii() else len(key.encode()))
        resp += "\r\n" + key + "\r\n$" + str(len(value) if value.isascii() else len(value.encode()))
        return resp + "\r\n" + value + "\r\n"
    parts = ["*" + str(len(command)) + "\r\n"]
    for arg in command:
        size = str(len(arg) if arg.isascii() else len(arg.encode()))
        parts.append("$" + size + "\r\n" + arg + "\r\n")
    return "".join(parts)


def by_substitution(command: Sequence[str]) -> bytes:
    """Write a command with ``%`` on bytes, which is a fifth faster than on str."""
    if len(command) == 3:
        name, key, value = command
        encoded = name.encode()
        key_encoded = key.encode()
        value_encoded = value.encode()
        return SUBSTITUTE_3 % (
            len(encoded),
            encoded,
            len(key_encoded),
            key_encoded,
            len(value_encoded),
            value_encoded,
        )
    count = len(command)
    args = [arg.encode() for arg in command]
    values: list[Any] = [count] * (2 * count + 1)
    values[1::2] = map(len, args)
    values[2::2] = args
    return (b"*%d\r\n" + b"$%d\r\n%b\r\n" * count) % tuple(values)


Generator: TypeAlias = Callable[[Sequence[str]], str] | Callable[[Sequence[str]], bytes]


# The generators, by their names in the report's table.
GENERATORS: dict[str, Generator] = {
    "format": by_format,
    "concatenation +": by_concatenation,
    "substitution %": by_substitution,
}


def chunks(generate: Callable[[Any], Any], commands: Iterable[Any]) -> Iterator[bytes]:
    """Encode commands with ``generate``, and join their RESP into chunks of about 1 MiB.

    The size of the previous chunk determines the number of commands in the next chunk. Adding up
    bytes instead would take 30 ns per command.
    """
    made = map(generate, commands)
    count = FIRST_COMMANDS
    while parts := list(islice(made, count)):
        chunk = b"".join(parts) if isinstance(parts[0], bytes) else "".join(parts).encode()
        yield chunk
        count = max(1, count * CHUNK_BYTES // len(chunk))
