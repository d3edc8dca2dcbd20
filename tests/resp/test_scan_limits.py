"""ReplyScanner: texts that are long, replies that are deep or too large, and no memory for them."""

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
    """Of an error the first 4 KiB are kept, wherever the pieces and the CRLF are cut."""
    text = b"ERR " + b"\rx" * (size // 2) + b"z"
    text = text[:size]
    for data in (b"-" + text + b"\r\n", b"!%d\r\n%b\r\n" % (size, text)):
        right = Outcome(2, 1, [(0, text[:KEPT_BYTES], False)], False, None)
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
        assert scanned(pieces) == Outcome(2, 0, [], False, None)


def test_byte_by_byte_is_linear() -> None:
    """An endless error line costs no more a byte at its end than at its beginning."""

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
    errors = [] if push else [(0, b"A", True)]
    for pieces in ([data], pieces_of(data, range(0, len(data), 1001))):
        assert scanned(pieces) == Outcome(0 if push else 1, len(errors), errors, False, None)
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
    """A reply has its end within a limit; push messages and attributes alone are no way out."""
    stream = b"+OK\r\n" * 50 + head + more * 200
    scanner = ReplyScanner(max_reply_bytes=100)
    with pytest.raises(ProtocolError, match="more than the 100 bytes that a reply may have"):
        for at in range(0, len(stream), size):
            scanner.feed(stream[at : at + size])
    assert scanner.replies == 50


def test_attributes_do_not_nest_for_good() -> None:
    """A million attributes one after the other are no depth, nor are a million arrays."""
    data = (b"|1\r\n+a\r\n:1\r\n" * 10 + b"*2\r\n:1\r\n*1\r\n:1\r\n") * 100_000
    assert scanned([data]) == Outcome(100_000, 0, [], False, None)


def test_called_while_at_work() -> None:
    """What Python runs meanwhile (here at a garbage collection) may not feed the same scanner."""
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
    assert set(refused) <= {"feed() was called while it was at work"}
    assert scanner.errors == [(i, b"A", False) for i in range(5000)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere RLIMIT_AS may not hold")
def test_no_memory() -> None:
    """After a MemoryError the scanner does not go on in the middle of something."""
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
