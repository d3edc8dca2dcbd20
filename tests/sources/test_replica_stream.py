"""Spool: bytes from one thread to another, in files."""

from __future__ import annotations

import random
import threading

import pytest

from fastresp.sources import replica_stream
from fastresp.sources.replica_stream import Spool


def test_all_bytes_arrive_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_stream, "FILE_BYTES", 5000)
    source = random.Random(1)
    pieces = [source.randbytes(source.randrange(1, 3000)) for _ in range(300)]
    found = bytearray()
    shared = Spool()

    def write() -> None:
        for piece in pieces:
            shared.write(piece)
        shared.end()

    writer = threading.Thread(target=write)
    writer.start()
    while (data := shared.take(source.randrange(1, 4000))) != b"":
        found += data or b""
    writer.join()
    assert bytes(found) == b"".join(pieces)
    assert (shared.written, shared.unread) == (len(found), 0)


def test_an_error_is_raised_after_the_bytes_before_it() -> None:
    shared = Spool()
    assert shared.take(10, 0.001) is None
    shared.write(b"abc")
    shared.end(ValueError("lost"))
    shared.write(b"dropped")
    assert (shared.take(2), shared.take(2)) == (b"ab", b"c")
    for _ in range(2):
        with pytest.raises(ValueError, match="lost"):
            shared.take(1)


def test_close_ends_a_reader_that_waits() -> None:
    shared = Spool()
    shared.write(b"abc")
    shared.close()
    shared.write(b"dropped")
    assert shared.take(10) == b""
