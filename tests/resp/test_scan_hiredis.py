"""ReplyScanner compared with hiredis.Reader, and with a model for types that hiredis lacks."""

from __future__ import annotations

from itertools import chain
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from reply_model import cut_up, expected, pieces_of, scanned

from fastresp.resp.scan import ReplyScanner

SLOW_STREAMS = 100_000
ROUND_STREAMS = 5_000


class ErrorReply(Exception):
    """The class that hiredis uses for an error reply."""


def line(kind: bytes, text: bytes) -> bytes:
    return kind + text.replace(b"\r", b"").replace(b"\n", b"") + b"\r\n"


def payload(kind: bytes, text: bytes) -> bytes:
    return b"%b%d\r\n%b\r\n" % (kind, len(text), text)


def aggregate(kind: bytes, elements: list[bytes]) -> bytes:
    return b"%b%d\r\n%b" % (kind, len(elements), b"".join(elements))


def mapping(values: list[bytes]) -> bytes:
    """A map with keys that differ in Python."""
    pairs = [
        (b"-KEY %d\r\n" if len(value) % 3 == 1 else b":%d\r\n") % i + value
        for i, value in enumerate(values)
    ]
    return aggregate(b"%", pairs)


SCALARS = st.one_of(
    st.sampled_from([b"+OK\r\n", b"+QUEUED\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"$0\r\n\r\n"]),
    st.sampled_from(
        [b"#t\r\n", b"#f\r\n", b"_\r\n", b"%0\r\n", b"~0\r\n", b",inf\r\n", b",-nan\r\n"]
    ),
    st.sampled_from([b"-\r\n", b"-ERR unknown command\r\n", b"-WRONGTYPE \xff\r\n"]),
    st.binary(max_size=30).map(lambda text: line(b"+", text)),
    st.binary(max_size=30).map(lambda text: line(b"-", text)),
    st.binary(max_size=300).map(lambda text: payload(b"$", text)),
    st.binary(max_size=30).map(lambda text: payload(b"=", b"txt:" + text)),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
    st.integers().map(lambda number: b"(%d\r\n" % number),
    st.floats().map(lambda number: b",%b\r\n" % repr(number).encode()),
)


# An aggregate of this many preceding elements; a flat list is faster to make than a tree.
AGGREGATES = st.sampled_from(
    [(kind, count) for kind in (b"*", b"~", b">", b"%") for count in range(6)]
)


def folded(tokens: list[bytes | tuple[bytes, int]]) -> bytes:
    """Return the stream of some elements, and of aggregates that contain their predecessors.

    A push message within another aggregate is an element of it; at the top it is not a reply.
    """
    stack: list[bytes] = []
    for token in tokens:
        if isinstance(token, bytes):
            stack.append(token)
        else:
            kind, count = token
            first = max(0, len(stack) - count)
            elements = stack[first:]
            del stack[first:]
            stack.append(mapping(elements) if kind == b"%" else aggregate(kind, elements))
    return b"".join(stack)


# Hypothesis makes lists about twice as long as their minimum.
STREAMS = st.lists(SCALARS | AGGREGATES | AGGREGATES, min_size=5, max_size=60).map(folded)
CUTS = st.lists(st.integers(0, 2**16), max_size=8)


def errors_in(reply: Any, nested: bool = False) -> list[tuple[str, bool]]:
    """Return the errors in a reply read by hiredis, in the order of their bytes."""
    if isinstance(reply, ErrorReply):
        return [(str(reply), nested)]
    if isinstance(reply, dict):
        reply = list(chain.from_iterable(reply.items()))
    if isinstance(reply, list):
        return [error for element in reply for error in errors_in(element, True)]
    return []


def agree(stream: bytes, cuts: list[int]) -> None:
    """Check that both have seen the same replies and errors after each piece."""
    more = object()
    reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=more)
    scanner = ReplyScanner()
    replies = 0
    errors = []
    for piece in cut_up(stream, cuts):
        reader.feed(piece)
        scanner.feed(piece)
        while (reply := reader.gets()) is not more:
            if isinstance(reply, hiredis.PushNotification):
                continue
            for text, nested in errors_in(reply):
                errors.append((replies, text, nested))
            replies += 1
        assert scanner.replies == replies
        # The scanner already has the errors of an incomplete reply.
        found = [error for error in scanner.errors if error[0] < replies]
        read = [(i, text.decode(errors="replace"), element > 0) for i, text, element in found]
        assert read == errors
    assert not scanner.pending
    assert len(found) == len(scanner.errors)


@pytest.mark.slow
@settings(max_examples=1_500)
@given(STREAMS, CUTS)
def test_hiredis_agrees(stream: bytes, cuts: list[int]) -> None:
    agree(stream, cuts)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hiredis_agrees_on_100_000_streams() -> None:
    """Run it with ``pytest -m long tests/resp/test_scan_hiredis.py``: about 5 minutes."""
    seen = set()
    rounds = 0
    while len(seen) < SLOW_STREAMS and rounds < 2 * SLOW_STREAMS // ROUND_STREAMS:

        @seed(rounds)
        @settings(
            max_examples=ROUND_STREAMS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(STREAMS, CUTS)
        def check(stream: bytes, cuts: list[int]) -> None:
            agree(stream, cuts)
            seen.add(hash(stream))

        check()
        rounds += 1
    print(f"{len(seen):,} different streams in {rounds} rounds of {ROUND_STREAMS:,}")
    assert len(seen) >= SLOW_STREAMS


# Types that hiredis lacks (attributes, bulk errors), and bytes that are not RESP.
PIECES = st.one_of(
    SCALARS,
    st.binary(max_size=30).map(lambda text: payload(b"!", text)),
    st.sampled_from([b"*%d\r\n", b"%%%d\r\n", b"~%d\r\n", b">%d\r\n", b"|%d\r\n"]).flatmap(
        lambda header: st.integers(0, 3).map(lambda count: header % count)
    ),
    st.sampled_from([b"*", b"$", b"|1", b"\r", b"\n", b"\r\n", b"=3\r\n", b"!2\r\n", b":", b"-1"]),
)


@pytest.mark.slow
@settings(max_examples=1_500)
@given(st.lists(PIECES, max_size=15).map(b"".join), CUTS)
def test_model_agrees(stream: bytes, cuts: list[int]) -> None:
    right = expected(stream)
    assert scanned([stream]) == right
    assert scanned(cut_up(stream, cuts)) == right
    assert scanned(pieces_of(stream, range(len(stream)))) == right


@settings(max_examples=500)
@given(st.binary(), CUTS)
def test_any_bytes(stream: bytes, cuts: list[int]) -> None:
    assert scanned([stream]) == scanned(cut_up(stream, cuts)) == expected(stream)
