"""ReplyScanner: count replies in any pieces, keep their errors; faults have an offset."""

from __future__ import annotations

import socket
from ast import literal_eval
from collections.abc import Callable, Iterator

import hiredis
import pytest
import redis
from reply_model import Outcome, expected, pieces_of, scanned

from fastresp import ProtocolError, pack
from fastresp.resp.scan import ReplyScanner
from fastresp.server.local_server import LocalServer

Errors = list[tuple[int, bytes, int]]

# Bytes, the number of replies, and the errors.
WHOLE: list[tuple[bytes, int, Errors]] = [
    (b"", 0, []),
    # Simple strings. A lone CR or LF does not end a line.
    (b"+OK\r\n", 1, []),
    (b"+OK\r\n" * 3, 3, []),
    (b"+\r\n", 1, []),
    (b"+OKAY\r\n+OK\n\r\n+O\r\n+OK\r\r\n+OK\rx\r\n", 5, []),
    (b"+a\rb\nc\n\rd\r\r\n", 1, []),
    # Errors.
    (b"-ERR unknown command\r\n", 1, [(0, b"ERR unknown command", 0)]),
    (b"-\r\n", 1, [(0, b"", 0)]),
    (b"-a\rb\n\xff\r\r\n", 1, [(0, b"a\rb\n\xff\r", 0)]),
    (b"+OK\r\n-A\r\n:1\r\n-B\r\n+OK\r\n", 5, [(1, b"A", 0), (3, b"B", 0)]),
    (b"!5\r\nA\r\nB \r\n", 1, [(0, b"A\r\nB ", 0)]),
    (b"!0\r\n\r\n!-1\r\n", 2, [(0, b"", 0)]),
    # Numbers.
    (b":0\r\n:-1\r\n:+7\r\n:007\r\n", 4, []),
    (b":9223372036854775807\r\n:-9223372036854775808\r\n:12345678901234567890123\r\n", 3, []),
    (b"(0\r\n(-1\r\n(+34928903284092385093248509438509438250249385094385\r\n", 3, []),
    (b",1\r\n,1.\r\n,.5\r\n,-1.25e-7\r\n,1E5\r\n,inf\r\n,-inf\r\n,nan\r\n,-nan\r\n", 9, []),
    (b"#t\r\n#f\r\n_\r\n", 3, []),
    # Strings.
    (b"$0\r\n\r\n", 1, []),
    (b"$-1\r\n", 1, []),
    (b"$10\r\n\r\n-ERR\r\n\r\n\r\n", 1, []),
    (b"$0003\r\nabc\r\n", 1, []),
    (b"=4\r\ntxt:\r\n=8\r\nmkd:\r\n\r\n\r\n", 2, []),
    # Aggregates.
    (b"*0\r\n*-1\r\n%0\r\n%-1\r\n~0\r\n~-1\r\n", 6, []),
    (b"*3\r\n:1\r\n+a\r\n$1\r\nb\r\n", 1, []),
    (b"*2\r\n*2\r\n:1\r\n*0\r\n*1\r\n*-1\r\n+OK\r\n", 2, []),
    (b"%2\r\n+a\r\n:1\r\n*1\r\n+b\r\n%1\r\n+c\r\n_\r\n", 1, []),
    (b"~2\r\n#t\r\n~1\r\n,1\r\n", 1, []),
    # Errors inside aggregates.
    (b"*2\r\n-A\r\n+OK\r\n", 1, [(0, b"A", 1)]),
    (b":1\r\n*2\r\n-A\r\n*1\r\n!1\r\nB\r\n", 2, [(1, b"A", 1), (1, b"B", 2)]),
    (b"%1\r\n-A\r\n-B\r\n~1\r\n-C\r\n", 2, [(0, b"A", 1), (0, b"B", 2), (1, b"C", 1)]),
    (b"*1\r\n-A\r\n-B\r\n", 2, [(0, b"A", 1), (1, b"B", 0)]),
    # Push messages are not replies, and an error in one belongs to no command.
    (b">2\r\n+a\r\n:1\r\n", 0, []),
    (b">0\r\n>1\r\n*1\r\n-A\r\n>2\r\n-B\r\n!1\r\nC\r\n+OK\r\n", 1, []),
    (b"+OK\r\n>1\r\n+a\r\n-A\r\n>1\r\n>1\r\n-B\r\n-C\r\n", 3, [(1, b"A", 0), (2, b"C", 0)]),
    # RESP allows them only between replies; inside a reply they would be an element.
    (b"*2\r\n>1\r\n-A\r\n>0\r\n+OK\r\n", 2, [(0, b"A", 1)]),
    # Attributes belong to the reply after them.
    (b"|1\r\n+ttl\r\n:1\r\n+OK\r\n", 1, []),
    (b"|0\r\n+OK\r\n", 1, []),
    (b"|1\r\n-A\r\n*1\r\n-B\r\n-C\r\n", 1, [(0, b"C", 0)]),
    (b"*2\r\n|1\r\n+a\r\n-A\r\n:1\r\n|0\r\n-B\r\n", 1, [(0, b"B", 2)]),
    (b"*1\r\n|1\r\n|1\r\n+a\r\n+b\r\n+c\r\n+d\r\n:1\r\n", 1, []),
    (b"|1\r\n+a\r\n>1\r\n-A\r\n>1\r\n|1\r\n-B\r\n-C\r\n:1\r\n-D\r\n", 1, [(0, b"D", 0)]),
]

# The beginnings of replies.
PARTS = [
    (b"+", 0),
    (b"+O", 0),
    (b"+OK\r", 0),
    (b"-", 0),
    (b"-ERR\r", 0),
    (b":", 0),
    (b":1\r", 0),
    (b"$", 0),
    (b"$3\r\n", 0),
    (b"$3\r\nabc", 0),
    (b"$3\r\nabc\r", 0),
    (b"=7\r\ntx", 0),
    (b"!3\r\nab", 0),
    (b"*1\r\n", 0),
    (b"%1\r\n+a\r\n", 0),
    (b">1\r\n", 0),
    (b"|1\r\n+a\r\n", 0),
    (b"+OK\r\n+OK\r\n*2\r\n+OK\r\n", 2),
    # Lengths and counts beyond any memory: nothing is allocated for them.
    (b"$536870912\r\n", 0),
    (b"!536870912\r\nERR", 0),
    (b"*4294967295\r\n" * 1000, 0),
    (b"%4294967295\r\n:1\r\n:2\r\n:3\r\n", 0),
]

# Bytes after b"+OK\r\n", the fault's place in them, its message, and the bytes shown.
VALUE = "a line has an invalid value"
LONGER = "a bulk string is longer than its header says"
MALFORMED = [
    (b"x", 0, "no reply starts like this", b"+OK\r\nx"),
    (b"\r\n", 0, "no reply starts like this", b"+OK\r\n\r\n"),
    (b"HTTP/1.1 400 Bad Request\r\n", 0, "no reply starts like this", b"+OK\r\nHTTP/1.1 400 Bad"),
    (b"+OK\r\n\x00\r\n", 5, "no reply starts like this", b"+OK\r\n+OK\r\n\x00\r\n"),
    (b":\r\n", 0, VALUE, b"+OK\r\n:\r\n"),
    (b":-\r\n", 0, VALUE, b"+OK\r\n:-\r\n"),
    (b":+-1\r\n", 0, VALUE, b"+OK\r\n:+-1\r\n"),
    (b": 1\r\n", 0, VALUE, b"+OK\r\n: 1\r\n"),
    (b":1 \r\n", 0, VALUE, b"+OK\r\n:1 \r\n"),
    (b":1\r1\r\n", 0, VALUE, b"+OK\r\n:1\r1\r\n"),
    (b":1\n\r\n", 0, VALUE, b"+OK\r\n:1\n\r\n"),
    (b":1\r\r\n", 0, VALUE, b"+OK\r\n:1\r\r\n"),
    (b":" + b"1" * 30 + b"x\r\n", 0, VALUE, b"+OK\r\n:" + b"1" * 15),
    (b"(1.5\r\n", 0, VALUE, b"+OK\r\n(1.5\r\n"),
    (b"(\r\n", 0, VALUE, b"+OK\r\n(\r\n"),
    (b",\r\n", 0, VALUE, b"+OK\r\n,\r\n"),
    (b",1_0\r\n", 0, VALUE, b"+OK\r\n,1_0\r\n"),
    (b", 1\r\n", 0, VALUE, b"+OK\r\n, 1\r\n"),
    (b",1\x00\r\n", 0, VALUE, b"+OK\r\n,1\x00\r\n"),
    (b",0x1p3\r\n", 0, VALUE, b"+OK\r\n,0x1p3\r\n"),
    (b"#\r\n", 0, VALUE, b"+OK\r\n#\r\n"),
    (b"#x\r\n", 0, VALUE, b"+OK\r\n#x\r\n"),
    (b"#true\r\n", 0, VALUE, b"+OK\r\n#true\r\n"),
    (b"_x\r\n", 0, VALUE, b"+OK\r\n_x\r\n"),
    (b"$\r\n", 0, VALUE, b"+OK\r\n$\r\n"),
    (b"$-2\r\n", 0, VALUE, b"+OK\r\n$-2\r\n"),
    (b"$-\r\n", 0, VALUE, b"+OK\r\n$-\r\n"),
    (b"$+1\r\na\r\n", 0, VALUE, b"+OK\r\n$+1\r\na\r\n"),
    (b"$1x\r\n", 0, VALUE, b"+OK\r\n$1x\r\n"),
    (b"$1234567890123456789\r\n", 0, VALUE, b"+OK\r\n$123456789012345"),
    (b"$18446744073709551615\r\n", 0, VALUE, b"+OK\r\n$184467440737095"),
    (b"$?\r\n", 0, VALUE, b"+OK\r\n$?\r\n"),
    (b"*?\r\n", 0, VALUE, b"+OK\r\n*?\r\n"),
    (b"*-2\r\n", 0, VALUE, b"+OK\r\n*-2\r\n"),
    (b"*1.0\r\n", 0, VALUE, b"+OK\r\n*1.0\r\n"),
    (b">-1\r\n", 0, VALUE, b"+OK\r\n>-1\r\n"),
    (b"|-1\r\n", 0, VALUE, b"+OK\r\n|-1\r\n"),
    (b"=-1\r\n", 0, VALUE, b"+OK\r\n=-1\r\n"),
    (b"*1\r\n%1\r\n:1\r\n:x\r\n", 12, VALUE, b"OK\r\n*1\r\n%1\r\n:1\r\n:x\r\n"),
    (b"*4294967296\r\n", 0, "a length is out of range", b"+OK\r\n*4294967296\r\n"),
    (b"%999999999999999999\r\n", 0, "a length is out of range", b"+OK\r\n%999999999999999"),
    (b"$3\r\nabcd\r\n", 7, LONGER, b"+OK\r\n$3\r\nabcd\r\n"),
    (b"$3\r\nabc\n\n", 7, LONGER, b"+OK\r\n$3\r\nabc\n\n"),
    (b"$3\r\nabc\rx", 8, LONGER, b"+OK\r\n$3\r\nabc\rx"),
    (b"$3\r\nabc\r\r\n", 8, LONGER, b"+OK\r\n$3\r\nabc\r\r\n"),
    (b"$5\r\nabc\r\n+OK\r\n", 9, LONGER, b"+OK\r\n$5\r\nabc\r\n+OK\r\n"),
    (b"!1\r\nabc\r\n", 5, LONGER, b"+OK\r\n!1\r\nabc\r\n"),
    (b"=3\r\ntxt\r\n", 0, "a verbatim string is too short", b"+OK\r\n=3\r\ntxt\r\n"),
    (b"=7\r\ntext:ab\r\n", 7, "a verbatim string does not name", b"+OK\r\n=7\r\ntext:ab\r\n"),
    (b":" * 70_000, 0, "a line does not end", b"+OK\r\n" + b":" * 16),
    (b"$" + b"0" * 70_000 + b"\r\n", 0, "a line does not end", b"+OK\r\n$" + b"0" * 15),
    (b"(" + b"1" * 65_537 + b"\r\n", 0, "a line does not end", b"+OK\r\n(" + b"1" * 15),
    (b"x" * 70_000 + b"\r\n", 0, "no reply starts like this", b"+OK\r\n" + b"x" * 16),
]


def said(error: ProtocolError) -> tuple[str, bytes]:
    """Return a fault's message, and the bytes that it shows."""
    prefix, message, around = error.args[0].split(": ", 2)
    assert prefix == "not RESP replies"
    return message, literal_eval(around)


@pytest.mark.parametrize(("data", "replies", "errors"), WHOLE)
def test_whole(data: bytes, replies: int, errors: Errors) -> None:
    right = Outcome(replies, errors, False, None)
    assert scanned([data]) == right
    assert scanned(pieces_of(data, range(len(data)))) == right
    for cut in range(len(data) + 1):
        assert scanned([data[:cut], data[cut:]]) == right
        assert scanned([data[:cut], data[cut : cut + 1], b"", data[cut + 1 :]]) == right
        # Each beginning is counted immediately, and the model agrees.
        assert scanned([data[:cut]]) == expected(data[:cut])
    assert expected(data) == right


@pytest.mark.parametrize(("data", "replies"), PARTS)
def test_part(data: bytes, replies: int) -> None:
    assert scanned([data]) == Outcome(replies, [], True, None)
    assert scanned(pieces_of(data, range(len(data)))) == Outcome(replies, [], True, None)


@pytest.mark.parametrize(("data", "at", "message", "bytes_shown"), MALFORMED)
def test_malformed(data: bytes, at: int, message: str, bytes_shown: bytes) -> None:
    scanner = ReplyScanner()
    with pytest.raises(ProtocolError) as caught:
        scanner.feed(b"+OK\r\n" + data)
    assert caught.value.offset == 5 + at
    found, around = said(caught.value)
    assert found.startswith(message)
    assert around == bytes_shown
    assert scanner.replies == expected(b"+OK\r\n" + data).replies
    # However it is split, the fault is in the same place, and some of its bytes are shown.
    cuts = range(len(data)) if len(data) < 100 else [1, 1000, 65_535, 65_537, 65_538]
    for places in [cuts, *([cut] for cut in cuts)]:
        scanner = ReplyScanner()
        scanner.feed(b"+OK\r\n")
        with pytest.raises(ProtocolError) as caught:
            for piece in pieces_of(data, places):
                scanner.feed(piece)
        assert caught.value.offset == 5 + at
        found, around = said(caught.value)
        assert found.startswith(message)
        assert data[at : at + 1] in around


def test_every_type_byte() -> None:
    for byte in range(256):
        for data in (bytes([byte]), b"*1\r\n%c" % byte, b"%c1\r\n" % byte):
            assert scanned([data]) == scanned(pieces_of(data, range(len(data)))) == expected(data)


def test_fault_shows_the_split_line() -> None:
    scanner = ReplyScanner()
    scanner.feed(b"+OK\r\n*12")
    with pytest.raises(ProtocolError, match=r"an invalid value: b'\*12x\\r\\n' \(at byte 5\)"):
        scanner.feed(b"x\r\n+OK\r\n")


def test_fault_is_permanent() -> None:
    scanner = ReplyScanner()
    with pytest.raises(ProtocolError) as first:
        scanner.feed(b"-A\r\n+OK\r\nx\r\n+OK\r\n")
    for more in (b"", b"+OK\r\n", b"\r\n", b"+OK\r\n"):
        with pytest.raises(ProtocolError) as again:
            scanner.feed(more)
        assert again.value is first.value
    assert (scanner.replies, scanner.errors) == (2, [(0, b"A", 0)])


def test_fault_does_not_grow() -> None:
    """The error keeps no frames, and so no pieces, of the calls that raised it again."""
    scanner = ReplyScanner()
    for _ in range(100):
        with pytest.raises(ProtocolError) as caught:
            scanner.feed(b"x")
    depth, traceback = 0, caught.value.__traceback__
    while traceback:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 5


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_bytes(kind: Callable[[bytes], bytes]) -> None:
    scanner = ReplyScanner()
    assert scanner.feed(kind(b"")) == 0
    assert scanner.feed(kind(b"+OK\r\n:1\r\n-A")) == 2
    assert scanner.feed(kind(b"\r\n")) == 1
    assert scanner.errors == [(2, b"A", 0)]


def test_pieces_are_released() -> None:
    piece = bytearray(b"+OK\r\n-ERR a\r\n$5\r\nab")
    ReplyScanner().feed(piece)
    piece.clear()
    piece[:] = b"x"
    with pytest.raises(ProtocolError):
        ReplyScanner().feed(piece)
    piece.clear()


@pytest.mark.parametrize("data", ["+OK\r\n", None, 1, memoryview(b"+OK\r\n")[::2]])
def test_not_bytes(data: object) -> None:
    scanner = ReplyScanner()
    with pytest.raises((TypeError, BufferError)):
        scanner.feed(data)  # type: ignore[arg-type]
    assert scanner.feed(b"+OK\r\n") == 1


def test_returned_and_offset() -> None:
    scanner = ReplyScanner()
    assert (scanner.feed(b"+OK\r\n>1\r\n:1\r\n+O"), scanner.offset, scanner.pending) == (
        1,
        15,
        True,
    )
    assert (scanner.feed(b""), scanner.offset, scanner.pending) == (0, 15, True)
    assert (scanner.feed(b"K\r"), scanner.offset, scanner.pending) == (0, 17, True)
    assert (scanner.feed(b"\n+OK\r\n"), scanner.offset, scanner.pending) == (2, 23, False)


def test_errors_emptied_between() -> None:
    """The caller empties the list of errors; later errors keep their indices."""
    scanner = ReplyScanner()
    taken = []
    for piece in (b"-A\r\n+OK\r\n*2\r\n-B\r\n", b"-C\r\n-D", b"\r\n", b"+OK\r\n-E\r\n"):
        scanner.feed(piece)
        taken.append(scanner.errors[:])
        scanner.errors.clear()
    assert taken == [
        [(0, b"A", 0), (2, b"B", 1)],
        [(2, b"C", 2)],
        [(3, b"D", 0)],
        [(5, b"E", 0)],
    ]
    assert scanner.replies == 6


@pytest.fixture
def raw(server: LocalServer) -> Iterator[socket.socket]:
    """Return a plain connection to the server."""
    with redis.Redis.from_url(server.url) as settings:
        path = settings.connection_pool.connection_kwargs["path"]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        yield connection


def ask(raw: socket.socket, commands: list[tuple[object, ...]], size: int) -> ReplyScanner:
    """Send commands; read their replies in pieces of at most ``size`` bytes."""
    scanner = ReplyScanner()
    raw.sendall(b"".join(map(hiredis.pack_command, commands)))
    while scanner.replies < len(commands) or scanner.pending:
        piece = raw.recv(size)
        assert piece
        scanner.feed(piece)
    return scanner


@pytest.mark.parametrize("size", [1, 7, 65_536])
@pytest.mark.parametrize("protocol", [2, 3])
def test_real_replies(raw: socket.socket, protocol: int, size: int) -> None:
    commands: list[tuple[object, ...]] = [
        ("HELLO", protocol),
        ("SET", "a", "1\r\n2"),
        ("LPUSH", "a", 1),
        ("GET", "a"),
        ("GET", "missing"),
        ("MULTI",),
        ("SET", "b", 1),
        ("LPUSH", "b", 1),
        ("INCR", "b"),
        ("EXEC",),
        ("EVAL", "return {1, redis.error_reply('BAD one'), {redis.error_reply('BAD two')}}", 0),
        ("EVAL", "return redis.error_reply('BAD three')", 0),
        ("MULTI",),
        ("NO-SUCH-COMMAND",),
        ("EXEC",),
        ("ZADD", "z", 1.5, "m"),
        ("ZSCORE", "z", "m"),
        ("HSET", "h", "f", "v"),
        ("HGETALL", "h"),
        ("SADD", "s", 1, 2),
        ("SMEMBERS", "s"),
        ("INFO",),
        ("COMMAND",),
        ("PING",),
    ]
    if protocol == 3:
        kinds = ("verbatim", "bignum", "double", "null", "true", "false", "map", "set", "array")
        commands += [("DEBUG", "PROTOCOL", kind) for kind in (*kinds, "attrib", "push")]
    scanner = ask(raw, commands, size)
    assert scanner.replies == len(commands)
    codes = [(index, text.split()[0], nested) for index, text, nested in scanner.errors]
    found = [each for each in codes if commands[each[0]][0] != "DEBUG"]
    assert found == [
        (2, b"WRONGTYPE", 0),
        (9, b"WRONGTYPE", 2),
        (10, b"BAD", 2),
        (10, b"BAD", 3),
        (11, b"BAD", 0),
        (13, b"ERR", 0),
        (14, b"EXECABORT", 0),
    ]


def test_real_push_messages(raw: socket.socket, client: redis.Redis) -> None:
    """Invalidations arrive between replies, even replies of a transaction, and are not counted."""
    commands: list[tuple[object, ...]] = [("HELLO", 3), ("CLIENT", "TRACKING", "ON")]
    for i in range(20):
        commands += [("GET", f"k{i}"), ("SET", f"k{i}", i), ("MULTI",), ("GET", f"k{i}")]
        commands += [("SET", f"k{i}", "x"), ("LPUSH", f"k{i}", 1), ("EXEC",)]
    raw.sendall(b"".join(map(hiredis.pack_command, commands)))
    seen = b""
    scanner = ReplyScanner()
    while scanner.replies < len(commands):
        piece = raw.recv(100)
        scanner.feed(piece)
        seen += piece
    # Another client's write reaches this connection without a request.
    raw.sendall(pack("GET", "k0"))
    while scanner.replies < len(commands) + 1:
        scanner.feed(raw.recv(100))
    client.set("k0", "y")
    message = raw.recv(100)
    assert message.startswith(b">2\r\n")
    assert scanner.feed(message) == 0
    assert seen.count(b">2\r\n$10\r\ninvalidate\r\n") >= 20
    assert scanner.replies == len(commands) + 1
    assert [index for index, _, _ in scanner.errors] == list(range(8, len(commands), 7))
    assert {(text.split()[0], nested) for _, text, nested in scanner.errors} == {(b"WRONGTYPE", 3)}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_replies_that_must_be_ok(size: int) -> None:
    """Other replies are errors, however the bytes arrive; replies before and after are not."""
    scanner = ReplyScanner()
    scanner.declared = {1, 2, 3, 4, 5, 6, 7, 8}
    data = (
        b":3\r\n+OK\r\n+QUEUED\r\n*1\r\n+NO\r\n-ERR x\r\n$2\r\nOK\r\n!5\r\nERR y\r\n"
        b">1\r\n+push\r\n|1\r\n+a\r\n:1\r\n+OK\r\n+" + b"x" * 200 + b"\r\n+NO\r\n:1\r\n"
    )
    for at in range(0, len(data), size):
        scanner.feed(data[at : at + size])
    assert scanner.replies == 11
    assert scanner.errors == [
        (2, b"the reply was +QUEUED, not +OK", 0),
        (3, b"the reply was *1, not +OK", 0),
        (4, b"ERR x", 0),
        (5, b"the reply was $2, not +OK", 0),
        (6, b"ERR y", 0),
        (8, b"the reply was +" + b"x" * 100 + b", not +OK", 0),
    ]
