"""RESP files are checked as a whole before anything is sent, then sent unchanged."""

from __future__ import annotations

import asyncio
import io
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis
from peak import PEAK

import fastresp
from fastresp import EncodeError, ProtocolError, aio, pack, pack_many
from fastresp.resp.shown import shown_command
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.sources.files.command_files import arguments_of_line
from fastresp.sources.files.resp import RespFile
from fastresp.transports.redis_cli import RedisCli
from fastresp.transports.socket import SocketTransport

COMMANDS = [("SET", f"key:{i}", f"value {i}\r\n") for i in range(30_000)]
RESP = pack_many(COMMANDS)
SUBSCRIBE = b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n"
LAST_SHOWN = r'SET "key:29999" "value 29999\r\n"'


@pytest.fixture
def resp(tmp_path: Path):
    """Return a function that writes a RESP file."""

    def write(content: bytes = RESP) -> Path:
        path = tmp_path / "x.resp"
        path.write_bytes(content)
        return path

    return write


def load(source, server, transport: str) -> fastresp.Report:
    """Load over one of three transports."""
    if transport == "aio":
        return asyncio.run(aio.mass_insert(source, server=server.url))
    return fastresp.mass_insert(source, server=server.url, transport=transport)


WAYS = pytest.mark.parametrize("transport", ["redis-cli", "socket", "aio"])


@WAYS
def test_load(server, client, resp, transport: str) -> None:
    source = fastresp.read(resp())
    report = load(source, server, transport)
    assert (report.rows, report.commands, report.failed) == (30_000, 30_000, 0)
    assert report.replies == 30_000
    assert report.bytes_sent == len(RESP)
    assert client.dbsize() == 30_000
    assert client.get("key:29999") == b"value 29999\r\n"
    assert (source.rows, source.fraction()) == (30_000, 1.0)


@WAYS
@pytest.mark.parametrize("cut", [1, 3, 10, 36])
def test_truncated(server, client, resp, transport: str, cut: int) -> None:
    path = resp(RESP[:-cut])
    with pytest.raises(ProtocolError, match="is truncated") as caught:
        load(fastresp.read(path), server, transport)
    assert client.dbsize() == 0
    assert caught.value.offset == len(pack_many(COMMANDS[:-1]))
    start = len(pack_many(COMMANDS[:-2]))
    assert str(caught.value).endswith(
        f"(at byte {caught.value.offset:,})\n29,999 whole commands before it, the last one "
        rf'(command 29,998, at byte {start:,}): SET "key:29998" "value 29998\r\n"'
    )
    report = load(fastresp.read(path, skip_truncated=True), server, transport)
    assert (report.commands, report.replies, client.dbsize()) == (29_999, 29_999, 29_999)


@WAYS
@pytest.mark.parametrize("skip", [False, True])
def test_garbage(server, client, resp, transport: str, skip: bool) -> None:
    with pytest.raises(ProtocolError, match=r"x\.resp: not RESP commands: expected") as caught:
        load(fastresp.read(resp(RESP + b"garbage" + RESP), skip_truncated=skip), server, transport)
    assert client.dbsize() == 0
    assert caught.value.offset == len(RESP)
    assert LAST_SHOWN in str(caught.value)


@WAYS
def test_refused_commands(server, client, resp, transport: str) -> None:
    words = r"x\.resp, line 240,001: command 30,000: SUBSCRIBE"
    with pytest.raises(EncodeError, match=words) as caught:
        load(fastresp.read(resp(RESP + SUBSCRIBE)), server, transport)
    assert (caught.value.command, caught.value.row) == (30_000, 30_000)
    assert client.dbsize() == 0


@WAYS
def test_argument_too_large_for_the_server(start_server, resp, transport: str) -> None:
    small = start_server("--proto-max-bulk-len", "1mb")
    path = resp(RESP + pack("SET", "large", "x" * 1_500_000) + RESP)
    with pytest.raises(EncodeError, match="1,500,000 bytes is more than the 1,048,576") as caught:
        load(fastresp.read(path), small, transport)
    assert caught.value.command == 30_000
    with redis.Redis.from_url(small.url) as client:
        assert client.dbsize() == 0
        with (
            pytest.raises(EncodeError, match="command 30,000: an argument of"),
            pipe(path.read_bytes()) as file,
        ):
            load(fastresp.read(file, format="resp"), small, transport)
        assert client.dbsize() == 30_000


def pipe(content: bytes):
    """A pipe that a thread writes to."""
    reader, writer = os.pipe()

    def feed() -> None:
        # A refused file is not read to its end.
        with suppress(BrokenPipeError), open(writer, "wb") as file:
            file.write(content)

    threading.Thread(target=feed, daemon=True).start()
    return open(reader, "rb")


@WAYS
def test_pipe_is_checked_as_it_streams(server, client, transport: str) -> None:
    with pipe(RESP) as file:
        source = fastresp.read(file, format="resp")
        report = load(source, server, transport)
    assert (report.commands, source.rows, source.fraction()) == (30_000, None, None)
    client.flushall()
    with pipe(RESP[:-1]) as file, pytest.raises(ProtocolError, match="29,999 whole commands"):
        load(fastresp.read(file, format="resp"), server, transport)
    assert client.dbsize() == 29_999
    with pipe(RESP + b"?") as file, pytest.raises(ProtocolError, match="key:29999"):
        load(fastresp.read(file, format="resp"), server, transport)
    assert client.dbsize() == 30_000
    with pipe(RESP[:-1]) as file:
        source = fastresp.read(file, format="resp", skip_truncated=True)
        assert load(source, server, transport).commands == 29_999


@WAYS
def test_empty_lines(server, client, resp, transport: str) -> None:
    """A load and the file check ignore empty lines between commands, as a server does.

    Redis' own test of --pipe writes a line end after each command.
    """
    commands = [("SET", f"k{i}", f"\n\r\n{i}") for i in range(2000)]
    ends = (b"", b"\n", b"\r\n", b"\n\r\n\n")
    content = b"\r\n\n" + b"".join(
        pack(*command) + ends[i % 4] for i, command in enumerate(commands)
    )
    raw = client.connection_pool.get_connection()
    raw.send_packed_command([content])
    assert [raw.read_response() for _ in commands] == [b"OK"] * 2000
    client.connection_pool.release(raw)
    client.flushall()
    source = fastresp.read(resp(content))
    report = load(source, server, transport)
    assert (report.rows, report.commands, report.failed) == (2000, 2000, 0)
    assert report.bytes_sent == len(pack_many(commands))
    assert (source.rows, source.fraction()) == (2000, 1.0)
    assert [client.get(key) for _, key, _ in commands] == [v.encode() for _, _, v in commands]
    summary = RespFile(resp(content)).summary()
    last = len(content) - len(ends[1999 % 4])
    assert (summary.commands, summary.size, summary.fault) == (2000, last, None)
    assert summary.last_offset == last - len(pack(*commands[-1]))
    client.flushall()
    with pipe(content) as file:
        assert load(fastresp.read(file, format="resp"), server, transport).commands == 2000
    assert client.dbsize() == 2000


@pytest.mark.parametrize(
    "carrier", [RedisCli, lambda url: SocketTransport(Options(server=url))], ids=["cli", "socket"]
)
def test_empty_lines_written(server, client, carrier) -> None:
    with carrier(server.url) as transport:
        for command in (("SET", "a", "1"), ("INCR", "a"), ("INCR", "a")):
            transport.write(b"\r\n" + pack(*command) + b"\n")
            transport.write(b"\r")
            transport.write(b"\n")
    assert (transport.report.commands, transport.report.replies) == (3, 3)
    assert client.get("a") == b"3"


@pytest.mark.parametrize("line", [b"PING\r\n", b" \r\n", b"\rPING\n"])
def test_inline_commands_are_refused(server, client, resp, line: bytes) -> None:
    path = resp(pack("SET", "a", "b") + b"\n" + line)
    with pytest.raises(ProtocolError, match=r"expected '\*'") as caught:
        load(fastresp.read(path), server, "socket")
    assert caught.value.offset == len(pack("SET", "a", "b")) + 1
    assert client.dbsize() == 0


def test_file_objects_and_limit(server, client, resp) -> None:
    file = io.BytesIO(b"before" + RESP)
    file.seek(6)
    source = fastresp.read(file, format="resp", limit=7)
    assert fastresp.mass_insert(source, server=server.url).commands == 7
    assert source.rows == 7
    # Bytes after the limit are ignored.
    source = fastresp.read(resp(RESP[: len(RESP) // 2]), limit=20_00)
    assert fastresp.mass_insert(source, server=server.url).commands == 2_000
    assert fastresp.mass_insert(fastresp.read(resp(), limit=0), server=server.url).commands == 0


def test_empty_file(server, resp) -> None:
    assert fastresp.mass_insert(fastresp.read(resp(b"")), server=server.url).commands == 0


def test_template_with_resp(server, resp) -> None:
    with pytest.raises(TypeError, match="contains whole commands; leave out the template"):
        fastresp.mass_insert(fastresp.read(resp()), "SET {0} {1}", server=server.url)


def test_read(resp) -> None:
    path = resp()
    assert isinstance(fastresp.read(path, limit=3), RespFile)
    assert isinstance(fastresp.read(str(path)), RespFile)
    path = path.rename(path.with_suffix(".RESP"))
    assert isinstance(fastresp.read(path), RespFile)
    assert isinstance(fastresp.read(io.BytesIO(RESP), format="resp"), RespFile)
    with pytest.raises(ValueError, match="no columns for a query"):
        fastresp.read(path, sql="SELECT 1")
    with pytest.raises(ValueError, match="one at a time"):
        fastresp.read([path, path], format="resp")
    with pytest.raises(ValueError, match="is for RESP files"):
        fastresp.read("x.csv", skip_truncated=True)


def test_text_file_and_missing_file(resp) -> None:
    with open(resp()) as file, pytest.raises(TypeError, match="'rb'"):
        RespFile(file)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        fastresp.read("/nowhere/x.resp")


def test_errors_have_the_row(server, client, resp) -> None:
    client.set("list", 1)
    content = pack_many([("SET", "a", 1), ("LPUSH", "list", 1)])
    report = fastresp.mass_insert(
        fastresp.read(resp(content)), server=server.url, transport="socket", on_error="collect"
    )
    assert (report.errors[0].index, report.errors[0].row) == (1, 1)
    assert report.errors[0].arguments == (b"LPUSH", b"list", b"1")


def test_execute_and_dump(server, resp, tmp_path: Path) -> None:
    replies = fastresp.iter_replies(fastresp.read(resp()), server=server.url)
    assert sum(1 for reply in replies if reply == b"OK") == 30_000
    out = tmp_path / "y.resp"
    assert fastresp.dump(fastresp.read(resp()), None, out) == 30_000
    assert out.read_bytes() == RESP


def test_summary(resp) -> None:
    content = pack_many([("set", "a", 1), ("SET", "b", "22"), ("LPUSH", "l", "x" * 99), ("Set",)])
    summary = RespFile(resp(content)).summary()
    assert summary.names == {"SET": 3, "LPUSH": 1}
    assert (summary.commands, summary.size, summary.fault) == (4, len(content), None)
    assert (summary.largest, summary.largest_command) == (99, 2)
    assert summary.last == "Set"


def test_number_of_names_is_bounded(resp) -> None:
    content = pack_many([(f"NAME{i}",) for i in range(1500)])
    names = RespFile(resp(content)).summary().names
    assert len(names) == 1001
    assert names["(other)"] == 500


def test_header_larger_than_the_file(resp) -> None:
    """The bytes announced by a broken header are neither waited for nor stored."""
    path = resp(RESP + b"*2\r\n$3\r\nGET\r\n$99999999999\r\n" + bytes(200_000_000))
    before = psutil.Process().memory_info().rss
    summary = RespFile(path).summary()
    assert summary.truncated
    assert summary.commands == 30_000
    assert psutil.Process().memory_info().rss - before < 50_000_000


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "head", [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1500000000\r\n", b"*1000000000\r\n$4\r\nMSET\r\n"]
)
def test_check_does_not_store_what_a_header_announces(head: bytes) -> None:
    """``check -`` reads the bytes announced by a header, and drops them."""
    code = (
        f"import sys; out = sys.stdout.buffer; out.write({head!r})\n"
        "for _ in range(200): out.write(b'$8\\r\\nxxxxxxxx\\r\\n' * 70_000)"
    )
    look = (
        PEAK + "import sys; from fastresp.sources.files.resp import RespFile; start = peak();"
        "found = RespFile(sys.stdin.buffer).summary(); print(peak() - start, found.truncated)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        done = subprocess.run(
            [sys.executable, "-c", look], stdin=writer.stdout, capture_output=True, text=True
        )
    grown, truncated = done.stdout.split()
    assert truncated == "True"
    assert int(grown) < 32 << 10


@pytest.mark.slow
def test_memory_is_bounded(server, resp) -> None:
    path = resp(b"")
    with open(path, "wb") as file:
        for _ in range(60):
            file.write(pack("SET", "k", "x" * 5_000_000))
    code = (
        PEAK + "import fastresp, sys; fastresp.mass_insert([], server=sys.argv[2]);"
        "start = peak();"
        "fastresp.mass_insert(fastresp.read(sys.argv[1]), server=sys.argv[2], transport='socket');"
        "print(peak() - start)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), server.url], capture_output=True, text=True
    )
    assert int(done.stdout) < 64 << 10, done


def test_broken_at_any_byte(resp) -> None:
    """If bytes are cut off or overwritten, the earlier commands are correct."""
    commands = [("SET", f"k{i}", "v" * i) for i in range(40)]
    data = pack_many(commands)
    sizes = [len(pack(*command)) for command in commands]
    for cut in range(len(data)):
        summary = RespFile(io.BytesIO(data[:cut])).summary()
        whole = next(n for n in range(40, -1, -1) if sum(sizes[:n]) <= cut)
        assert (summary.commands, summary.size) == (whole, sum(sizes[:whole]))
        assert summary.truncated == (cut != summary.size)
    random.seed(1)
    for _ in range(300):
        broken = bytearray(data)
        broken[random.randrange(len(data))] = random.randrange(256)
        summary = RespFile(io.BytesIO(bytes(broken))).summary()
        assert summary.size <= len(data)
        assert summary.fault is not None or summary.size == len(data)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("SET", "a b", 'q"\\'), r'SET "a b" "q\"\\"'),
        (("GET", "é\n\0"), r'GET "\xc3\xa9\n\x00"'),
        (("SET", "k", "x" * 100), f'SET "k" "{"x" * 48}"... (100 bytes)'),
        (("DEL", *range(100)), "DEL " + " ".join(f'"{i}"' for i in range(11)) + " ..."),
        (("odd name",), '"odd name"'),
        (("", ""), '"" ""'),
    ],
)
def test_shown_command(command, shown: str) -> None:
    assert shown_command(pack(*command)).startswith(shown)


def test_shown_command_of_a_beginning() -> None:
    head = pack("SET", "x" * 10_000, "y")[:4096]
    assert shown_command(head) == f'SET "{"x" * 48}"... (10,000 bytes) ... (3 arguments)'


LINES = [
    rb"one  two\tthree",
    rb"it 'a b' \"c d\"",
    rb"""joined a"b" c'd' ''""",
    rb"""escapes "\n\r\t\b\a\x00\xFF\xZ\q\"\\" '\n\'' 'a\\'""",
    rb"\x41 back\slash",
    b"caf\xc3\xa9 \xff\x0b\x0c.",
    b"\x0b\x0cblank first ",
    rb"open 'a",
    rb"open 'a\'",
    rb'open "a\"',
    rb'followed "a"b',
    rb"followed 'a'b",
]


@pytest.mark.parametrize("line", LINES)
def test_lines_of_commands_are_split_as_a_server_splits_them(
    server: LocalServer, line: bytes
) -> None:
    """The server's own parser of inline commands has the same rules as redis-cli."""
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(server.socket))
        raw.sendall(b"EVAL 'return ARGV' 0 " + line + b"\r\nPING\r\n")
        raw.settimeout(5)
        said = b""
        while not said.endswith((b"+PONG\r\n", b"in request\r\n")):
            said += raw.recv(1 << 16)
    words = arguments_of_line(line + b"\r")
    expected = None if said.startswith(b"-ERR Protocol error") else said.removesuffix(b"+PONG\r\n")
    assert (words if words is None else pack(*words)) == expected


def test_file_of_text_commands(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "commands.txt"
    value = "x" * 3_000_000
    path.write_text(f'SET "a key" 1\n\nSET b "two\\nlines"\r\nSET c {value}\n' + "INCR d\n" * 9_999)
    with pytest.raises(ProtocolError, match="use format='commands'"):
        fastresp.mass_insert(fastresp.read(path, format="resp"), server=server.url)
    source = fastresp.read(path, format="commands")
    report = fastresp.mass_insert(source, server=server.url, connections=2)
    assert (report.rows, report.failed) == (10_002, 0)
    assert client.mget("a key", "b", "c", "d") == [b"1", b"two\nlines", value.encode(), b"9999"]
    with path.open("rb") as file, file:
        source = fastresp.read(file, format="commands", limit=4)
        assert fastresp.mass_insert(source, server=server.url).rows == 4
    assert client.get("d") == b"10000"
    path.write_text("SET e 1\nSET 'f 2\n")
    with pytest.raises(fastresp.SourceError, match=r"commands.txt, line 2: its quotes are not"):
        fastresp.mass_insert(fastresp.read(path, format="commands"), server=server.url)
    assert not client.exists("e")


def test_resp_with_lf_line_ends(resp: Callable[..., Path], server: LocalServer) -> None:
    path = resp(RESP.replace(b"\r\n", b"\n"))
    with pytest.raises(ProtocolError, match=r"ends in LF, and RESP in CRLF: .* unix2dos"):
        fastresp.mass_insert(path, server=server.url)
