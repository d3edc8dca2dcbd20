"""A short and slow model of RESP replies, the reference for ReplyScanner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from fastresp import ProtocolError
from fastresp.resp.scan import ReplyScanner

DEPTH = 1024
KEPT_BYTES = 4096
# Bytes between the type byte of a line and its CRLF; the larger limit is for RESP3 numbers.
LONGEST_LINE = 32
LONGEST_NUMBER = 65536
LONGEST_STRING = 512 << 20
VALUES = {
    b":": rb"[+-]?[0-9]+",
    b"(": rb"[+-]?[0-9]+",
    b",": rb"(?i)[+-]?(inf|infinity|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)",
    b"#": rb"[tf]",
    b"_": rb"",
}


class Outcome(NamedTuple):
    """The result for a stream. ``fault`` is the offset of the first byte that is not RESP."""

    replies: int
    errors: list[tuple[int, bytes, int]]
    pending: bool
    fault: int | None


class Fault(Exception):
    """The bytes at this offset are not RESP."""


class Cut(Exception):
    """The stream ends within a line or a payload."""


def elements(stream: bytes) -> Iterator[tuple[int, bytes, Any]]:
    """Yield each element's offset, type and value: error text, aggregate length, or None."""
    at = 0
    while at < len(stream):
        start, kind = at, stream[at : at + 1]
        if kind not in b"+-:$*_#,(!=%~>|":
            raise Fault(start)
        end = stream.find(b"\r\n", at + 1)
        longest = LONGEST_NUMBER if kind in b"(," else LONGEST_LINE
        if end < 0:
            if kind not in b"+-" and len(stream) - at - 1 > longest + 2:
                raise Fault(start)
            raise Cut
        text, at = stream[at + 1 : end], end + 2
        if kind == b"+":
            yield start, kind, None
        elif kind == b"-":
            yield start, kind, text[:KEPT_BYTES]
        elif len(text) > longest:
            raise Fault(start)
        elif kind in VALUES:
            if not re.fullmatch(VALUES[kind], text):
                raise Fault(start)
            yield start, kind, None
        elif text == b"-1" and kind in b"$!*%~":
            yield start, b"_", None
        elif not re.fullmatch(rb"[0-9]{1,18}", text):
            raise Fault(start)
        elif kind in b"*%~>|":
            if int(text) >= 1 << 32:
                raise Fault(start)
            yield start, kind, int(text)
        else:
            size = int(text)
            if size > LONGEST_STRING:
                raise Fault(start)
            if kind == b"=" and size < 4:
                raise Fault(start)
            if kind == b"=" and stream[at + 3 : at + 4] not in (b"", b":"):
                raise Fault(at + 3)
            body, at = stream[at : at + size], at + size
            for expected in (b"\r", b"\n"):
                if at >= len(stream):
                    raise Cut
                if stream[at : at + 1] != expected:
                    raise Fault(at)
                at += 1
            yield start, kind, body[:KEPT_BYTES]


def expected(stream: bytes) -> Outcome:
    """Return this model's result for a stream."""
    replies, pending, fault = 0, False, None
    errors: list[tuple[int, bytes, int]] = []
    # For each open aggregate: its remaining elements, whether it is part of a reply, and its size.
    stack: list[list[Any]] = []
    try:
        for start, kind, value in elements(stream):
            if kind in (b"-", b"!") and all(counts for _, counts, _ in stack):
                element = stack[0][2] - stack[0][0] + 1 if stack else 0
                errors.append((replies, value, element))
            if kind in b"*%~>|":
                counts = kind != b"|" and (kind != b">" or bool(stack))
                if value:
                    if len(stack) == DEPTH:
                        raise Fault(start)
                    size = value * (2 if kind in b"%|" else 1)
                    stack.append([size, counts, size])
                    continue
                if not counts:
                    continue
            while stack:
                stack[-1][0] -= 1
                if stack[-1][0]:
                    break
                if not stack.pop()[1]:
                    break
            else:
                replies += 1
    except Cut:
        pending = True
    except Fault as found:
        fault = found.args[0]
    return Outcome(replies, errors, fault is None and bool(pending or stack), fault)


def scanned(pieces: Iterable[Any]) -> Outcome:
    """Return ReplyScanner's result for a stream in pieces."""
    scanner = ReplyScanner()
    fault = None
    returned = 0
    try:
        for piece in pieces:
            returned += scanner.feed(piece)
        assert returned == scanner.replies
    except ProtocolError as error:
        fault = error.offset
    pending = fault is None and scanner.pending
    return Outcome(scanner.replies, scanner.errors, pending, fault)


def pieces_of(stream: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return the stream, split at these offsets."""
    return [stream[start:end] for start, end in pairwise([0, *sorted(cuts), len(stream)])]


def cut_up(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return the stream, split at offsets that may be beyond its end."""
    return pieces_of(stream, [cut % (len(stream) + 1) for cut in cuts])
