"""Start a private server on a unix socket, and clean up after it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from ..outcome.errors import TransportError
from .descriptors import needed_for
from .forks import is_own, own
from .programs import end_group, need_program

__all__ = ["LocalServer"]

START_TIMEOUT_S = 10.0
# Seconds for the server to accept a connection, before the next attempt.
PROBE_TIMEOUT_S = 1.0
# Maximum bytes of the temporary folder's path: a unix socket's path is limited to about 100.
MAX_TEMPORARY = 60


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
            self._begin()
        return self

    def _begin(self) -> None:
        place = tempfile.gettempdir()
        place = place if len(os.fsencode(place)) <= MAX_TEMPORARY else "/tmp"
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
                words = self.log.read_text(errors="replace").strip()[-500:]
                words = words or "it printed nothing"
                raise TransportError(f"{self.program} did not start: {words}")
            time.sleep(0.005)

    def _listens(self) -> bool:
        """Return whether the server accepts connections; before that, its socket may exist."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def _command(self) -> list[str]:
        place = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        return [self.program, *place, "--save", "", *self.options]

    def stop(self) -> None:
        """Stop the server if it is running, and wait until it has ended."""
        process = getattr(self, "process", None)
        if process is not None:
            end_group(process)
        if is_own(self):
            self.socket.unlink(missing_ok=True)

    def _let_go(self) -> None:
        """In a forked child, leave the server to the parent."""
        if hasattr(self, "process"):
            self.process.returncode = 0  # keeps the child from waiting for the server or ending it
