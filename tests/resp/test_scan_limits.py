"""ReplyScanner: long texts, deep or too large replies, and lack of memory."""

from __future__ import annotations

import gc
import resource
import sys
from time import process_time

import psutil
import pytest
from reply_model import (
    DEPTH,
    KEPT_BYTES,
    LONGEST_LINE,
    LONGEST_NUMBER,
    Outcome,
    expected,
    pieces_of,
    scanned,
)

from fastresp import ProtocolError
from fastresp.resp.scan import ReplyScanner


@pytest.mark.parametrize("size", [KEPT_BYTES + n for n in range(-3, 4)] + [3 * KEPT_BYTES])
def test_long_error(size: int) -> None:
    """The first 4 KiB of an error are kept, wherever the pieces and the CRLF are split."""
    text = b"ERR " + b"\rx" * (size // 2) + b"z"
    text = text[:size]
    for data in (b"-" + text + b"\r\n", b"!%d\r\n%b\r\n" % (size, text)):
        right = Outcome(2, [(0, text[:KEPT_BYTES], False)], False, None)
        end = len(data)
        for cuts in (
            [],
            [1],
            [end - 1],
            [end - 2],
            [end - 3],
            [end - 2, end - 1],
            [10, KEPT_BYTES, KEPT_BYTES + 1],
            range(KEPT_BYTES - 5, end),
            range(0, end, 1000),
        ):
            assert scanned(pieces_of(data + b"+OK\r\n", cuts)) == right


@pytest.mark.parametrize(
    ("kinds", "longest"), [(b"(,", LONGEST_NUMBER), (b":", LONGEST_LINE)], ids=["big", "integer"]
)
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_long_number(kinds: bytes, longest: int, beyond: int) -> None:
    for kind in kinds:
        data = b"%c%b\r\n" % (kind, b"7" * (longest + beyond))
        right = expected(data)
        assert right.fault == (0 if beyond > 0 else None)
        end = len(data)
        for cuts in ([], [1], [end - 1], [end - 2], [end - 3, end - 2, end - 1], range(end)):
            assert scanned(pieces_of(data, cuts)) == right


def test_long_strings() -> None:
    data = b"+" + b"x\r" * 500_000 + b"\r\n" + b"$3000000\r\n" + b"\r\n:" * 1_000_000 + b"\r\n"
    for size in (len(data), 65_536, 4099, 100):
        pieces = pieces_of(data, range(size, len(data), size))
        assert scanned(pieces) == Outcome(2, [], False, None)


def test_byte_by_byte_is_linear() -> None:
    """In an endless error line, a late byte costs no more than an early one."""

    def seconds(scanner: ReplyScanner) -> float:
        begin = process_time()
        for _ in range(50_000):
            scanner.feed(b"x")
        return process_time() - begin

    for start in (b"-", b"+", b"!9999999\r\n"):
        scanner = ReplyScanner()
        scanner.feed(start)
        first = min(seconds(scanner) for _ in range(2))
        for _ in range(6):
            seconds(scanner)
        assert min(seconds(scanner) for _ in range(3)) < 5 * first


@pytest.mark.parametrize(
    "header", [b"*1\r\n", b"~1\r\n", b"%1\r\n:1\r\n", b">1\r\n", b"*2\r\n:1\r\n"]
)
def test_deep(header: bytes) -> None:
    push = header == b">1\r\n"
    data = header * DEPTH + b"-A\r\n"
    element = 2 if b":1" in header else 1
    errors = [] if push else [(0, b"A", element)]
    for pieces in ([data], pieces_of(data, range(0, len(data), 1001))):
        assert scanned(pieces) == Outcome(0 if push else 1, errors, False, None)
    scanner = ReplyScanner()
    with pytest.raises(ProtocolError, match="deeper than 1,024 levels") as caught:
        scanner.feed(header * DEPTH + header)
    assert caught.value.offset == len(header) * DEPTH


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"$101\r\n", b""),
        (b"!999999999999999999\r\n", b""),
        (b"*2\r\n=101\r\n", b""),
        (b"+", b"x"),
        (b"-", b"x"),
        (b"*1000\r\n", b":1\r\n"),
        (b"*1000\r\n", b"-E\r\n"),
        (b"", b">1\r\n+a\r\n"),
        (b"", b"|1\r\n+a\r\n+b\r\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 13])
def test_too_large(head: bytes, more: bytes, size: int) -> None:
    """A reply must end within the limit; push messages and attributes can't get around it."""
    stream = b"+OK\r\n" * 50 + head + more * 200
    scanner = ReplyScanner(max_reply_bytes=100)
    with pytest.raises(ProtocolError, match="more than the 100 bytes that a reply may have"):
        for at in range(0, len(stream), size):
            scanner.feed(stream[at : at + size])
    assert scanner.replies == 50


def test_attributes_do_not_add_depth() -> None:
    """Neither a million attributes in a row nor a million arrays add depth."""
    data = (b"|1\r\n+a\r\n:1\r\n" * 10 + b"*2\r\n:1\r\n*1\r\n:1\r\n") * 100_000
    assert scanned([data]) == Outcome(100_000, [], False, None)


def test_reentrant_feed() -> None:
    """Python code that runs during a call (here in a garbage collection) can't feed the scanner."""
    scanner = ReplyScanner()
    refused = []

    def feed(phase: str, info: dict[str, int]) -> None:
        try:
            scanner.feed(b"")
        except RuntimeError as error:
            refused.append(str(error))

    threshold = gc.get_threshold()
    gc.callbacks.append(feed)
    gc.set_threshold(1)
    try:
        scanner.feed(b"-A\r\n" * 5000)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(feed)
    # From Python 3.12 on a collection waits until the call is over.
    if sys.version_info < (3, 12):
        assert refused
    assert set(refused) <= {"feed() was called while another feed() was running"}
    assert scanner.errors == [(i, b"A", False) for i in range(5000)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere RLIMIT_AS may not hold")
def test_no_memory() -> None:
    """After a MemoryError the scanner refuses to continue."""
    scanner = ReplyScanner()
    piece = bytearray(400 << 20)
    piece[:4] = b"-ERR"
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (99 << 20), old[1])
    )
    try:
        with pytest.raises(MemoryError):
            scanner.feed(piece)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)
    with pytest.raises(MemoryError):
        scanner.feed(b"\r\n+OK\r\n")
    assert (scanner.replies, scanner.errors) == (0, [])
