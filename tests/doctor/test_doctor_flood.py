"""The doctor against a server that sends redis-py endless replies."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from peak import PEAK

from fastresp.server.local_server import LocalServer

LRANGE = b"*4\r\n$6\r\nLRANGE\r\n"
# Sent instead of the reply to LRANGE, which only redis-py's client uses: once, then repeatedly.
FLOODS = {
    "bulk": (b"$400000000\r\n", b"x"),
    "array": (b"*40000000\r\n", b"$1\r\nx\r\n"),
    "errors in an array": (b"*40000000\r\n", b"-ERR no\r\n"),
    "status": (b"+", b"x"),
    "pushes": (b"", b">2\r\n+message\r\n+x\r\n"),
}
# Maximum bytes sent: enough to be visible in the used memory.
FLOOD_BYTES = 256 << 20
# 3 MB of error replies make 160 MB of exceptions.
MAX_KILOBYTES = 192 << 10
CODE = """
import sys
from fastresp import TransportError
from fastresp.doctor import connections as link
from fastresp.doctor import doctor
link.CLIENT_S = float(sys.argv[2])
start = peak()
try:
    doctor(sys.argv[1])
except TransportError as error:
    print(peak() - start, error)
"""


@contextmanager
def flooding(server: LocalServer, path: Path, first: bytes, again: bytes) -> Iterator[str]:
    """Relay to a server, but answer LRANGE with a flood; yield the URL."""
    over = threading.Event()

    def flood(client: socket.socket) -> None:
        client.sendall(first)
        block = again * (65536 // len(again)) if again else b""
        for _ in range(FLOOD_BYTES // 65536 if block else 0):
            client.sendall(block)
        while not block and not over.wait(0.05):
            client.sendall(b"x")

    def relay(source: socket.socket, target: socket.socket, *, up: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if up and LRANGE in data:
                    flood(source)
                else:
                    target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, real = listener.accept()[0], socket.socket(socket.AF_UNIX)
                real.connect(str(server.socket))
                for source, target, up in ((client, real, True), (real, client, False)):
                    threading.Thread(
                        target=relay, args=(source, target), kwargs={"up": up}, daemon=True
                    ).start()

    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield f"unix://{path}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)


def run(url: str, seconds: float) -> tuple[int, str]:
    """Run the doctor; return its memory growth in kilobytes, and its error."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK + CODE, url, str(seconds)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    grown, _, words = done.stdout.partition(" ")
    return int(grown), words


@pytest.mark.parametrize(
    "kind", ["bulk", *(pytest.param(k, marks=pytest.mark.long) for k in FLOODS if k != "bulk")]
)
def test_flood(server: LocalServer, tmp_path: Path, kind: str) -> None:
    with flooding(server, tmp_path / "socket", *FLOODS[kind]) as url:
        grown, words = run(url, 30.0)
    assert grown < MAX_KILOBYTES
    assert "its reply is too large, or never ends" in words or "can't parse" in words


@pytest.mark.slow
def test_slow_endless_reply(server: LocalServer, tmp_path: Path) -> None:
    with flooding(server, tmp_path / "socket", b"+", b"") as url:
        assert "its reply is too large, or never ends" in run(url, 1.0)[1]
