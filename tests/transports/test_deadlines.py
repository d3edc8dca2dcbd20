"""Every wait ends: one deadline for a load, regardless of its number of connections."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import redis
from loads import Insert

import fastresp
import fastresp.aio
from fastresp.load.dry_run import dry_run
from fastresp.load.inquiry import command_info
from fastresp.server import settings as server_module
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.transports.socket import SocketTransport

SET = "SET key:{0} {1}"
VALUE = "x" * 1000

ANSWERS = {b"PING": b"+PONG\r\n", b"ECHO": b"$8\r\nfastresp\r\n"}

Answer = Callable[[socket.socket], object]


@contextmanager
def fake_server(answer: Answer) -> Iterator[str]:
    """A server that handles each connection with a function, and need not speak RESP."""
    ends: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            ends.append(end)
            threading.Thread(target=serve, args=(end,), daemon=True).start()

    def serve(end: socket.socket) -> None:
        with suppress(OSError):
            answer(end)

    listener = socket.create_server(("127.0.0.1", 0))
    try:
        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for end in ends:
            end.close()


def silent(end: socket.socket) -> None:
    while end.recv(4096):
        pass


def trickle(end: socket.socket) -> None:
    """Send the start of a long reply, byte by byte, forever."""
    end.sendall(b"$1000000\r\n")
    while True:
        end.sendall(b"x")
        time.sleep(0.05)


def slow_answers(end: socket.socket) -> None:
    """Send each reply in time, but in total too late."""
    while data := end.recv(4096):
        if not data.startswith(b"*"):
            return  # the TLS handshake that is attempted last
        if b"SETINFO" in data:
            end.sendall(b"+OK\r\n" * data.count(b"SETINFO"))
        else:
            time.sleep(0.2)
            end.sendall(ANSWERS.get(data.split(b"\r\n")[2], b"$0\r\n\r\n"))


def pass_on(end: socket.socket, server: LocalServer) -> None:
    """Forward commands to a real server, one at a time."""
    with socket.socket(socket.AF_UNIX) as real:
        real.connect(str(server.socket))
        while data := end.recv(65536):
            real.sendall(data)
            end.sendall(real.recv(65536))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for a server to answer."""
    monkeypatch.setattr(server_module, "ASK_TIMEOUT_S", 0.6)
    monkeypatch.setattr(server_module, "OPEN_TIMEOUT_S", 0.6, raising=False)


CALLERS: dict[str, Callable[[str], object]] = {
    "mass_insert": lambda url: fastresp.mass_insert([("SET", "a", 1)], server=url, timeout=0.3),
    "64 connections": lambda url: fastresp.mass_insert(
        [(1, 1)], SET, server=url, timeout=0.3, connections=64
    ),
    "asyncio": lambda url: asyncio.run(
        fastresp.aio.mass_insert([("SET", "a", 1)], server=url, timeout=0.3)
    ),
    "no timeout": lambda url: fastresp.mass_insert([("SET", "a", 1)], server=url, timeout=None),
    "iter_replies": lambda url: list(
        fastresp.iter_replies([("SET", "a", 1)], server=url, timeout=0.3)
    ),
    "execute": lambda url: fastresp.execute("PING", server=url, timeout=0.3),
    "fetch_hashes": lambda url: list(fastresp.fetch_hashes(["a"], ["b"], server=url, timeout=0.3)),
    "command_info": lambda url: command_info(["GET"], url, timeout=0.3),
    "ListBuffer": lambda url: fastresp.ListBuffer("a", server=url, timeout=0.3).pop(1),
}


# After the timeout, a second is spent on explaining the failure.
SILENT = ("mass_insert", "64 connections", "asyncio", "ListBuffer")
CASES = [
    pytest.param(
        caller, answer, marks=pytest.mark.long if answer is silent and caller not in SILENT else ()
    )
    for answer in (silent, trickle)
    for caller in CALLERS
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("caller", "answer"), CASES)
def test_server_that_never_finishes_a_reply(short: None, caller: str, answer: Answer) -> None:
    started = time.monotonic()
    with fake_server(answer) as url, pytest.raises(fastresp.TransportTimeout) as caught:
        CALLERS[caller](url)
    assert time.monotonic() - started < 10
    assert caught.value.report is None


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("answer", "words"),
    [(trickle, "incomplete reply"), (slow_answers, "could not be opened within 0.6 s")],
)
def test_dry_run_when_a_reply_never_ends(short: None, answer: Answer, words: str) -> None:
    template = fastresp.Template("SET {0} {1}")
    with fake_server(answer) as url:
        found = dry_run([(1, 1)], template, server=url, timeout=0.3)
    assert words in found.inquiry.unreachable


@pytest.mark.few(1)
@pytest.mark.parametrize("answer", [silent, trickle])
def test_server_that_answers_the_first_connection_only(
    short: None, server: LocalServer, answer: Answer
) -> None:
    """All connections share one deadline."""
    count = 0

    def first_only(end: socket.socket) -> None:
        nonlocal count
        count += 1
        if count == 1:
            pass_on(end, server)
        else:
            answer(end)

    started = time.monotonic()
    with fake_server(first_only) as url, pytest.raises(fastresp.TransportTimeout):
        fastresp.mass_insert([(1, 1)], SET, server=url, timeout=0.5, connections=64)
    assert time.monotonic() - started < 10
    assert 2 <= count < 64
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0


def test_opening_is_interrupted(server: LocalServer) -> None:
    """The report says that nothing was sent."""
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    with fake_server(silent) as url:
        timer.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            fastresp.mass_insert([("SET", "a", 1)], server=url, transport="socket")
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.transport, report.commands, report.in_doubt) == ("socket", 0, 0)


def test_opening_is_cancelled(short: None) -> None:
    """The report says that nothing was sent."""

    async def main(url: str) -> BaseException:
        load = asyncio.create_task(fastresp.aio.mass_insert([("SET", "a", 1)], server=url))
        await asyncio.sleep(0.1)
        load.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await load
        return caught.value

    with fake_server(silent) as url:
        error = asyncio.run(main(url))
    report: fastresp.Report = error.report  # type: ignore[attr-defined]
    assert (report.transport, report.commands, report.in_doubt) == ("socket", 0, 0)
    assert "0 commands" in error.__notes__[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("connections", [1, 64])
def test_frozen_server(
    insert: Insert, start_server: Callable[..., LocalServer], connections: int
) -> None:
    """The timeout applies to the load, not to each connection in turn."""
    server = start_server()
    frozen = 0.0

    def rows() -> Iterator[tuple[int, str]]:
        nonlocal frozen
        for i in range(20_000 * connections):
            if i == 10_000:
                os.kill(server.process.pid, signal.SIGSTOP)
                frozen = time.monotonic()
            yield i % 1000, VALUE

    with pytest.raises(fastresp.TransportTimeout, match=r"no progress for 1 s"):
        insert(rows(), SET, server=server.url, connections=connections, timeout=1.0)
    # A slow machine encodes for a while; 64 timeouts in turn would be over a minute.
    assert time.monotonic() - frozen < 20
    os.kill(server.process.pid, signal.SIGCONT)


def test_progress_on_any_connection_counts(server: LocalServer, client: redis.Redis) -> None:
    """One connection is silent for longer than the timeout, while another makes progress."""
    with SocketTransport(Options(server=server.url, connections=2, timeout=1.0)) as transport:
        transport.write(fastresp.pack("BLPOP", "gate", 0))
        started = time.monotonic()
        while time.monotonic() - started < 1.5:
            transport.write(fastresp.pack("SET", "key", VALUE))
            time.sleep(0.01)
        client.lpush("gate", 1)
    report = transport.report
    assert report.replies == report.commands > 1
    assert client.exists("gate") == 0


def test_connections_are_opened_in_parallel(short: None, server: LocalServer) -> None:
    """Over a slow network, 64 connections opened in turn would take 64 times as long."""
    count = 0
    met: list[int] = []
    meeting = threading.Barrier(4)

    def meet(end: socket.socket) -> None:
        nonlocal count
        count += 1
        if count == 1:
            pass_on(end, server)
        else:
            with suppress(threading.BrokenBarrierError):  # the retry opens fewer connections
                met.append(meeting.wait(10))

    with fake_server(meet) as url, pytest.raises(fastresp.TransportError):
        fastresp.mass_insert([(1, 1)], SET, server=url, timeout=0.5, connections=5)
    assert {0, 1, 2, 3} <= set(met)
