"""RawReplies: the bytes of each reply, however the stream is cut."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_replies import REPLIES, bulk, plain
from reply_model import cut_up, pieces_of

from fastresp import CommandError, ProtocolError
from fastresp.resp.read import RawReplies, ReplyReader


def split(pieces: list[bytes]) -> list[Any]:
    raw = RawReplies()
    replies: list[Any] = []
    for piece in pieces:
        raw.feed(piece)
        waiting = raw.waiting
        found = raw.take()
        assert len(found) == waiting
        replies += found
    assert raw.offset == sum(map(len, pieces))
    assert not raw.pending
    return replies


def error_of(reply: bytes) -> Any:
    """Return the exception that ReplyReader creates for an error."""
    reader = ReplyReader()
    reader.feed(reply)
    return plain(reader.take()[0])


@given(st.lists(REPLIES, max_size=10), st.lists(st.integers(0, 400)))
@settings(max_examples=60)
def test_equal_to_the_replies(replies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(replies)
    wanted = [error_of(each) if each[:1] == b"-" else each for each in replies]
    for each in (cut_up(stream, cuts), [stream], pieces_of(stream, range(len(stream)))):
        assert [plain(reply) for reply in split(each)] == wanted


def test_error_inside_an_array() -> None:
    """It stays in its bytes, and the next reply is not an error."""
    stream = b"*2\r\n-ERR a\r\n+b\r\n"
    assert split([stream, b"+OK\r\n"]) == [stream, b"+OK\r\n"]
    [error, reply] = split([b"-ERR \xff\r\n*0\r\n"])
    assert isinstance(error, CommandError)
    assert (error.text, reply) == ("ERR \\xff", b"*0\r\n")


FAULTS = [
    (b"+OK\r\nx", 5, "no reply starts like this"),
    (b"+OK\r\n*1\r\n%1\r\n", 9, "no reply starts like this"),
    (b"+OK\r\n$x\r\n", 5, "a length is invalid"),
    (b"+OK\r\n$-2\r\n", 5, "a length is invalid"),
    (b"+OK\r\n:1x\r\n", 5, "a number is invalid"),
    (b"+OK\r\n$1\r\nabc", 10, "longer than its header says"),
    (b"+OK\r\n$1\r\na\rc", 11, "longer than its header says"),
]


@pytest.mark.parametrize(("stream", "offset", "words"), FAULTS)
def test_faults(stream: bytes, offset: int, words: str) -> None:
    for pieces in ([stream], [bytes([byte]) for byte in stream]):
        raw = RawReplies()
        with pytest.raises(ProtocolError, match=words) as caught:
            for piece in pieces:
                raw.feed(piece)
        assert caught.value.offset == offset
        assert raw.take() == [b"+OK\r\n"]
        with pytest.raises(ProtocolError):
            raw.feed(b"+OK\r\n")


LARGE = [
    bulk(b"x" * 1001),
    b"$1001\r\n",
    b"*2\r\n" + bulk(b"x" * 500) + b"$501\r\n",
    b"*16\r\n",
    b"*1\r\n" * 16,
    b"*1000000000000\r\n",
]


@pytest.mark.parametrize("stream", LARGE)
def test_limit(stream: bytes) -> None:
    for pieces in ([stream], [bytes([byte]) for byte in stream]):
        raw = RawReplies(max_reply_bytes=1000)
        raw.feed(bulk(b"x" * 1000) + b"*15\r\n" + b":1\r\n" * 15)
        with pytest.raises(ProtocolError, match="the reply is too large"):
            for piece in pieces:
                raw.feed(piece)
    with pytest.raises(ValueError, match="max_reply_bytes"):
        RawReplies(max_reply_bytes=0)


def test_memory_grows_only_as_bytes_arrive() -> None:
    """A header alone allocates nothing for the announced length."""
    raw = RawReplies()
    tracemalloc.start()
    try:
        raw.feed(b"*1000\r\n$400000000\r\nabc")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert raw.pending
