"""ReplyReader compared with hiredis.Reader: the same objects, however the bytes are split."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext
from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_replies import REPLIES, bulk, plain
from reply_model import cut_up, pieces_of

from fastresp import CommandError, ProtocolError
from fastresp.replies.reply_columns import ReplyColumns
from fastresp.resp.read import ReplyReader
from fastresp.resp.scan import ReplyScanner

NOTHING = object()


class Hiredis:
    """Read a stream with hiredis, with our exceptions."""

    def __init__(self, encoding: str | None) -> None:
        self.reader = hiredis.Reader(
            replyError=CommandError, encoding=encoding, notEnoughData=NOTHING
        )

    def read(self, pieces: list[bytes]) -> list[Any]:
        for piece in pieces:
            self.reader.feed(piece)
        return list(iter(self.reader.gets, NOTHING))


def read(pieces: list[bytes], encoding: str | None = None) -> list[Any]:
    reader = ReplyReader(encoding)
    replies = []
    for piece in pieces:
        reader.feed(piece)
        replies += reader.take()
    assert reader.offset == sum(map(len, pieces))
    return replies


@pytest.mark.slow
@given(
    st.lists(REPLIES, max_size=10), st.lists(st.integers(0, 400)), st.sampled_from([None, "utf-8"])
)
@settings(max_examples=500)
def test_equal_to_hiredis(replies: list[bytes], cuts: list[int], encoding: str | None) -> None:
    stream = b"".join(replies)
    expected = Hiredis(encoding).read([stream])
    assert len(expected) == len(replies)
    for each in (cut_up(stream, cuts), [stream], pieces_of(stream, range(len(stream)))):
        assert plain(read(each, encoding)) == plain(expected)


def test_other_encodings() -> None:
    assert read([bulk("é".encode("latin-1")), b"+\xe9\r\n"], "latin-1") == ["é", "é"]
    assert read([bulk("é".encode("utf-16"))], "utf-16") == ["é"]
    with pytest.raises(LookupError):
        ReplyReader("no-such-encoding")


@pytest.mark.parametrize("cut", range(1, 9))
def test_undecodable_text(cut: int) -> None:
    """Earlier replies can be taken, and later bytes are not read."""
    stream = b"+OK\r\n" + bulk(b"a\xffb") + b"+OK\r\n"
    reader = ReplyReader("utf-8")
    for piece in (stream[: 5 + cut], stream[5 + cut :], b"+OK\r\n"):
        reader.feed(piece)
    assert reader.take() == ["OK"]
    assert isinstance(reader.failure, UnicodeDecodeError)


def test_large_strings_in_pieces() -> None:
    value = bytes(range(256)) * 40_000
    stream = b"*2\r\n" + bulk(value) + bulk(b"end")
    pieces = [stream[at : at + 65_536] for at in range(0, len(stream), 65_536)]
    assert read(pieces) == [[value, b"end"]]


@pytest.mark.parametrize("size", [4_093, 4_094, 4_095, 4_096, 200_000])
def test_long_lines(size: int) -> None:
    """A status of any length is kept whole; an error text is cut."""
    stream = b"*2\r\n+%b\r\n-%b\r\n:1\r\n" % (b"s" * size, b"e" * size)
    [status, error], number = Hiredis(None).read([stream])
    for cut in (len(stream), 1, 999, 65_536):
        pieces = [stream[at : at + cut] for at in range(0, len(stream), cut)]
        assert plain(read(pieces)) == [[status, ("error", error.text[:4096])], number]


@pytest.mark.parametrize("text", [b"a\nb", b"\n", b"a\rb", b"\r\r", b"a\n\r"])
def test_a_lone_cr_or_lf_does_not_end_a_line(text: bytes) -> None:
    """This holds for all readers; a server's module may send one in a status."""
    stream = b"+%b\r\n-%b\r\n:1\r\n" % (text, text)
    for pieces in ([stream], [bytes([byte]) for byte in stream]):
        assert plain(read(pieces)) == [text, ("error", text.decode()), 1]
        scanner, columns = ReplyScanner(), ReplyColumns(["a"])
        for piece in pieces:
            scanner.feed(piece)
        assert (scanner.replies, scanner.errors) == (3, [(1, text, False)])
        columns.feed(b"-%b\r\n" % text)
        assert columns.errors == [(0, text)]


def test_deep_arrays() -> None:
    replies = read([b"*1\r\n" * 1000 + b":5\r\n"])
    for _ in range(1000):
        [replies] = replies
    assert replies == [5]
    with pytest.raises(ProtocolError, match="arrays nested deeper than 1,024 levels"):
        read([b"*1\r\n" * 5000])


def test_pending() -> None:
    reader = ReplyReader()
    assert not reader.pending
    for piece in (b"*2\r\n", b":1\r\n$", b"5\r\nab", b"cde", b"\r"):
        reader.feed(piece)
        assert reader.pending
        assert reader.take() == []
    reader.feed(b"\n")
    assert (reader.pending, reader.waiting) == (False, 1)
    assert reader.take() == [[1, b"abcde"]]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"hello\r\n", "no reply starts like this"),
        (b"%1\r\n+a\r\n+b\r\n", "no reply starts like this"),
        (b"$5\r\nabcdefg\r\n", "a bulk string is longer than its header says"),
        (b"$5\r\nabcde\rx", "a bulk string is longer than its header says"),
        (b":12a\r\n", "a number is invalid: b':12a\\r\\n'"),
        (b":\r\n", "a number is invalid: b':\\r\\n'"),
        (b":9223372036854775808\r\n", "a number is invalid"),
        (b"$-2\r\n", "a length is invalid: b'$-2\\r\\n'"),
        (b"$99999999999999999999\r\n", "a number is invalid"),
        (b"*4294967296\r\n", "more than the 536,870,912 bytes that a reply may have"),
        (b"*8388609\r\n", "more than the 536,870,912 bytes that a reply may have"),
        (b"*2\r\n*8388607\r\n", "more than the 536,870,912 bytes that a reply may have"),
        (b"$536870913\r\n", "more than the 536,870,912 bytes that a reply may have"),
        (b"$1152921504606846975\r\n", "more than the 536,870,912 bytes"),
        (b"$+5\r\nabcde\r\n", "a length is invalid: b'$+5"),
        (b"$0000000000000000005\r\nabcde\r\n", "a length is invalid"),
        (b"$3\nabc\r\n", "a number is invalid: b'$3\\nabc"),
        (b"\r\n", "no reply starts like this"),
        (b":" + b"1" * 70, "a line does not end"),
        (b"*" + b"1" * 70 + b"\r\n", "a line does not end"),
        (b"\xff" * 70, "no reply starts like this"),
        (b"*1\r\n" * 1025, "arrays nested deeper than 1,024 levels"),
    ],
)
def test_invalid_replies(stream: bytes, words: str) -> None:
    offsets = set()
    for size in (len(stream), 1, 2, 3, 7):
        reader = ReplyReader()
        reader.feed(b"+OK\r\n")
        with pytest.raises(ProtocolError) as caught:
            for at in range(0, len(stream), size):
                reader.feed(stream[at : at + size])
        assert words in str(caught.value)
        offsets.add(caught.value.offset)
        assert reader.take() == [b"OK"]
        with pytest.raises(ProtocolError):
            reader.feed(b"+OK\r\n")
    assert len(offsets) == 1, "where it is does not depend on how the bytes were cut"


def test_wrong_first_byte() -> None:
    """It is refused immediately, not at the end of its line."""
    for byte in set(range(256)) - {*b"+-:$*"}:
        reader = ReplyReader()
        with pytest.raises(ProtocolError, match=r"no reply starts like this: b.* \(at byte 0\)"):
            reader.feed(bytes([byte]))


@pytest.mark.slow
@given(st.lists(REPLIES, max_size=4), st.binary(max_size=12), st.lists(st.integers(0, 200)))
@settings(max_examples=500)
def test_faults_in_pieces(replies: list[bytes], noise: bytes, cuts: list[int]) -> None:
    """Replies before a fault, and the fault's offset, don't depend on how the stream is split."""
    stream = b"".join(replies) + noise
    outcomes = []
    for pieces in ([stream], cut_up(stream, cuts), pieces_of(stream, range(len(stream)))):
        reader, fault = ReplyReader(), None
        try:
            for piece in pieces:
                reader.feed(piece)
        except ProtocolError as error:
            fault = str(error)
        outcomes.append((plain(reader.take()), fault))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("most", [100, 1000])
@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_too_large(most: int, encoding: str | None) -> None:
    """A reply at the limit is accepted; one more byte is refused once its header has arrived."""
    for head, tail in (
        (b"$%d\r\n", b"\r\n"),
        (b"*1\r\n$%d\r\n", b"\r\n"),
        (b"*3\r\n$20\r\n" + b"y" * 20 + b"\r\n$%d\r\n", b"\r\n:1\r\n"),
        (b"*1\r\n*1\r\n$%d\r\n", b"\r\n"),
    ):
        room = most - 64 * head.count(b"*1") - (64 * 3 + 20) * head.count(b"*3")
        if room < 0:
            continue
        reader = ReplyReader(encoding, max_reply_bytes=most)
        for _ in range(3):
            reader.feed(head % room + b"x" * room + tail)
        assert len(reader.take()) == 3
        for pieces in ([head % (room + 1)], [head % (room + 1) + b"x" * (room + 1) + tail]):
            reader = ReplyReader(encoding, max_reply_bytes=most)
            with pytest.raises(ProtocolError, match=f"more than the {most:,} bytes"):
                for piece in pieces:
                    reader.feed(piece)


@pytest.mark.parametrize("kind", [b"+", b"-"])
def test_endless_line(kind: bytes) -> None:
    """Every reader refuses it after 16 MiB, at the same offset, however it is split."""
    readers: list[Any] = [ReplyReader(), ReplyScanner(), ReplyColumns(["a"])]
    for reader in readers[: 2 if kind == b"+" else 3]:
        reader.feed(kind)
        with pytest.raises(ProtocolError, match="does not end within 16,777,216 bytes") as caught:
            for _ in range(257):
                reader.feed(b"x" * 65_536)
        assert caught.value.offset == 0


@pytest.mark.parametrize("kind", [b"+", b"-"])
def test_too_long_a_line_that_ends(kind: bytes) -> None:
    """Split or not, a line may have 16 MiB with its CRLF and not a byte more."""
    words = "does not end within 16,777,216 bytes"
    for size, right in ((16_777_216, True), (16_777_217, False)):
        line = kind + b"x" * (size - 3) + b"\r\n"
        for pieces in ([line], [line[:-1], line[-1:]], [line[:9], line[9:]]):
            readers: list[Any] = [ReplyReader(), ReplyScanner(), ReplyColumns(["a"])]
            for reader in readers[: 2 if kind == b"+" else 3]:
                refused = nullcontext() if right else pytest.raises(ProtocolError, match=words)
                with refused:
                    for piece in pieces:
                        reader.feed(piece)


def test_memory_for_a_promised_length() -> None:
    """A header alone allocates at most 1 MiB, and received data is held about once."""
    tracemalloc.start()
    try:
        reader = ReplyReader()
        reader.feed(b"$500000000\r\nabc")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
        for _ in range(64):
            reader.feed(b"x" * 65_536)
        assert tracemalloc.get_traced_memory()[1] < 14 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "1"])
def test_invalid_limits(most: Any) -> None:
    for reader in (
        lambda: ReplyReader(max_reply_bytes=most),
        lambda: ReplyScanner(max_reply_bytes=most),
        lambda: ReplyColumns(["a"], max_reply_bytes=most),
    ):
        with pytest.raises(ValueError, match="max_reply_bytes must be a number of bytes above 0"):
            reader()
