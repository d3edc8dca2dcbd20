"""``receive()``: wait for input, read it and feed a sink in one call."""

import fcntl
import os
import signal
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator

import pytest

from fastresp.resp.read import ReplyReader
from fastresp.transports.signals import READ_BYTES, receive

LONG_MS = 20_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def unread(ours: socket.socket) -> int:
    """Received bytes that were not read yet."""
    return struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, b"\0" * 4))[0]


def later(
    pair: tuple[socket.socket, socket.socket], *pieces: bytes, pause: float = 0.05
) -> threading.Thread:
    """Send pieces from another thread, with pauses, each after the previous one was read."""
    ours, theirs = pair

    def send() -> None:
        for piece in pieces:
            while unread(ours):
                time.sleep(0.001)
            time.sleep(pause)
            theirs.sendall(piece)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_reads_all_available_bytes(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    reader = ReplyReader()
    receive(ours.fileno(), reader, 9)
    assert reader.offset == 0
    theirs.sendall(b"+OK\r\n:1")
    receive(ours.fileno(), reader, 9)
    assert (reader.take(), reader.offset) == ([b"OK"], 7)


def test_close_right_after_the_last_reply(pair: tuple[socket.socket, socket.socket]) -> None:
    """One call reads the reply and raises: a load can then drop the idle connection."""
    ours, theirs = pair
    theirs.sendall(b"+OK\r\n")
    theirs.close()
    reader = ReplyReader()
    with pytest.raises(EOFError):
        receive(ours.fileno(), reader, 9)
    assert reader.take() == [b"OK"]


def test_limit_of_reads(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    payload = b"x" * (2 * READ_BYTES)
    theirs.sendall(b"$%d\r\n%b\r\n" % (len(payload), payload))
    reader = ReplyReader()
    receive(ours.fileno(), reader, 2)
    assert (reader.offset, reader.pending) == (2 * READ_BYTES, True)
    receive(ours.fileno(), reader, 2)
    assert reader.take() == [payload]


def test_waits_for_the_rest_of_a_reply(pair: tuple[socket.socket, socket.socket]) -> None:
    """Later input is left to the next call."""
    ours, _ = pair
    reader = ReplyReader()
    thread = later(pair, b"*2\r\n$3\r\nab", b"c\r\n:", b"7\r\n", b"+late\r\n")
    receive(ours.fileno(), reader, 9, LONG_MS)
    assert reader.take() == [[b"abc", 7]]
    thread.join()
    receive(ours.fileno(), reader, 9, LONG_MS)
    assert reader.take() == [b"late"]
    thread = later(pair, b"$2\r\n", b"o", b"k\r\n")
    receive(ours.fileno(), reader, 2, LONG_MS)
    assert (reader.take(), reader.pending) == ([], True)
    thread.join()


def test_wait_ends_in_time(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"$2\r\n")
    reader = ReplyReader()
    start = time.monotonic()
    receive(ours.fileno(), reader, 9, 50)
    assert 0.04 < time.monotonic() - start < 10
    assert reader.pending


def test_closed_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"+last words\r\n$5\r\n")
    theirs.close()
    reader = ReplyReader()
    with pytest.raises(EOFError, match="closed the connection"):
        receive(ours.fileno(), reader, 9, LONG_MS)
    assert reader.take() == [b"last words"]
    fd = ours.fileno()
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        receive(fd, reader, 9)


@pytest.mark.parametrize("raises", [True, False])
def test_signal_ends_the_wait(pair: tuple[socket.socket, socket.socket], raises: bool) -> None:
    """Earlier input is kept."""
    ours, theirs = pair
    came = []

    def handle(number: int, frame: object) -> None:
        came.append(number)
        if raises:
            raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, handle)
    reader = ReplyReader()
    theirs.sendall(b"+OK\r\n$5\r\n")
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGALRM))
    start = time.monotonic()
    try:
        timer.start()
        if raises:
            with pytest.raises(KeyboardInterrupt):
                receive(ours.fileno(), reader, 9, LONG_MS)
        else:
            receive(ours.fileno(), reader, 9, LONG_MS)
    finally:
        timer.join()
        signal.signal(signal.SIGALRM, former)
    assert came == [signal.SIGALRM]
    assert time.monotonic() - start < LONG_MS / 2000
    assert (reader.take(), reader.pending) == ([b"OK"], True)


def test_returns_whether_input_came_soon(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    reader = ReplyReader()
    theirs.sendall(b"+OK\r\n")
    assert receive(ours.fileno(), reader, 9, LONG_MS)
    thread = later(pair, b"+late\r\n", pause=0.4)
    assert not receive(ours.fileno(), reader, 9, LONG_MS, soon=True)
    thread.join()
    assert reader.take() == [b"OK", b"late"]
    assert not receive(ours.fileno(), reader, 9, 1, soon=True)


def test_signal_while_polling(pair: tuple[socket.socket, socket.socket]) -> None:
    """The handler must not wait until the sleep is over."""
    ours, _ = pair

    def handle(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, handle)
    start = time.monotonic()
    try:
        for microseconds in range(20, 420, 4):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
                receive(ours.fileno(), ReplyReader(), 9, LONG_MS, soon=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert time.monotonic() - start < LONG_MS / 1000
