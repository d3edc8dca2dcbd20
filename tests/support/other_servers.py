"""Servers that share no code with Redis: noida-db from PyPI, and yodb, written in Rust."""

from __future__ import annotations

import shutil
import socket
import subprocess

from local_cluster import free_port
from needed import file_of, lacking

from fastresp.server.local_server import PROBE_TIMEOUT_S, LocalServer

__all__ = ["OTHER_SERVERS", "Noida", "Yodb"]


class Noida(LocalServer):
    """noida-db on TCP, with only its Redis service."""

    def __init__(self) -> None:
        super().__init__(program=str(file_of("noida_db", "noida-db")))
        self.port = free_port()

    def version(self) -> str:
        return last_line(self.program, "version")

    def _command(self) -> list[str]:
        self.url = f"redis://127.0.0.1:{self.port}"
        place = ["--data-dir", str(self.folder), "--redis-port", str(self.port)]
        return [self.program, "start", "--only", "redis", *place]

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), PROBE_TIMEOUT_S).close()
        except OSError:
            return False
        return True


class Yodb(LocalServer):
    """yodb; ``cargo install yo-cli --version 0.3.33 --locked`` takes ten minutes on two cores."""

    def __init__(self) -> None:
        program = shutil.which("yodb")
        if program is None:
            lacking("yodb is not on the PATH; .github/workflows/ci.yml runs it weekly", fails=False)
        super().__init__(program=program)

    def version(self) -> str:
        return last_line(self.program, "--version")

    def _command(self) -> list[str]:
        return [self.program, "serve", "--unixsocket", str(self.socket), "--no-port"]


def last_line(program: str, *options: str) -> str:
    done = subprocess.run([program, *options], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


OTHER_SERVERS: dict[str, type[Noida | Yodb]] = {"noida-db": Noida, "yodb": Yodb}
