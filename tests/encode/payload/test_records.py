"""Finished values as records of an RDB file, which each server reads when it starts."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from random import Random

import pytest
import redis
from random_values import Command, text, value
from server_programs import need
from twice import SERVERS, debugged
from waiting import until_loaded

import fastresp
from fastresp.encode.payload.format import Format, checksum
from fastresp.encode.payload.serializer import Serializer
from fastresp.encode.writer import Writer
from fastresp.server.local_server import LocalServer

# The end of a file, and the newest version that all forks of Redis read.
END, NEWEST = b"\xff", 11


def records(commands: Sequence[Command], version: int) -> tuple[Serializer, bytes]:
    serializer = Serializer(Format(version), max_bytes=1 << 30, file=True)
    chunks = []
    for chunk in Writer(chunk_bytes=1000).chunks(commands):
        chunks += serializer.serialize(chunk)
    chunks += serializer.finish()
    return serializer, b"".join(map(bytes, chunks))


def restart_with(server: LocalServer, data: bytes, version: int) -> None:
    """Restart a server with a file of these records."""
    server.stop()
    data = b"REDIS%04d" % version + data + END
    (server.folder / "dump.rdb").write_bytes(data + struct.pack("<Q", checksum(data)))
    server.start()


@pytest.mark.parametrize("name", SERVERS)
def test_random_records(name: str) -> None:
    need("server")
    source = Random(name)
    commands: list[Command] = []
    for index in range(200):
        key = source.choice((b"%d", b"-%d", b"key %d")) % index
        if source.random() < 0.3:
            commands += [[b"SET", key, text(source)] for _ in range(source.choice((1, 1, 2)))]
        else:
            commands += value(source, key)
        if source.random() < 0.2:
            commands.append([b"EXPIRE", key, b"%d" % source.randint(2000, 10**9)])
    with debugged(name) as server, redis.Redis.from_url(server.url) as client:
        fastresp.mass_insert(commands, server=server.url, transport="socket")
        client.set("any", "x")
        version = min(NEWEST, client.dump("any")[-10])
        client.delete("any")
        keys = sorted(client.keys())
        digests = client.execute_command("DEBUG", "DIGEST-VALUE", *keys)
        times = [client.ttl(key) for key in keys]
        serializer, data = records(commands, version)
        assert serializer.error is None
        assert serializer.key_count == len(keys) == 200
        assert serializer.expiring == sum(each > 0 for each in times) > 0
        restart_with(server, data, version)
        with redis.Redis.from_url(server.url) as client:
            until_loaded(client)
            assert sorted(client.keys()) == keys
            assert client.execute_command("DEBUG", "DIGEST-VALUE", *keys) == digests
            for key, wanted in zip(keys, times, strict=True):
                assert wanted - 60 < client.ttl(key) <= wanted


@pytest.mark.parametrize(
    ("commands", "made"),
    [
        ([["SET", "k", "v"]], b"\0\1k\1v"),
        ([["set", "k", "-32769"]], b"\0\1k\xc2\xff\x7f\xff\xff"),
        ([["SET", "1", "a"], ["SET", "1", "b"]], b"\0\xc0\1\1b"),
        ([["RPUSH", "k", "a"], ["SET", "l", "v"]],
         b"\x12\1k\1\2\x0a\x0a\0\0\0\1\0\x81a\2\xff\0\1l\1v"),
    ],
)  # fmt: skip
def test_records(commands: list[list[str]], made: bytes) -> None:
    serializer, data = records([[word.encode() for word in each] for each in commands], 11)
    assert serializer.error is None and data == made
    assert serializer.expiring == 0


@pytest.mark.parametrize(
    ("commands", "ms"),
    [
        ([["SET", "k", "v", "EX", "5"]], 5000),
        ([["SET", "k", "v", "px", "5"]], 5),
        ([["SET", "k", "v"], ["PEXPIRE", "k", "7"]], 7),
        ([["SET", "k", "v", "EX", "5"], ["SET", "k", "v", "EX", "6"]], 6000),
        ([["SET", "k", "u", "EX", "5"], ["SET", "k", "v"]], None),
    ],
)
def test_times(commands: list[list[str]], ms: int | None) -> None:
    """A time to live becomes a Unix time, counted from the serializer's creation."""
    before = int(time.time() * 1000)
    serializer, data = records([[word.encode() for word in each] for each in commands], 11)
    after = int(time.time() * 1000)
    assert serializer.error is None
    assert data.endswith(b"\0\1k\1v")
    assert serializer.expiring == (ms is not None)
    if ms is None:
        assert len(data) == 5
    else:
        assert data[0] == 0xFC and len(data) == 9 + 5
        assert before + ms <= int.from_bytes(data[1:9], "little") <= after + ms


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ([["SET", "k", "v", "NX"]], "SET may only have EX or PX and a number above 0"),
        ([["SET", "k", "v", "EX", "0"]], "SET may only have EX or PX"),
        ([["SET", "k", "v", "EX", "1", "NX"]], "SET may only have EX or PX"),
        ([["SET", "k"]], '"SET" has 0 arguments after the key'),
        ([["EXPIRE", "k", "1"]], '"EXPIRE" must follow a command that makes its key'),
        ([["SET", "k", "v"], ["EXPIRE", "l", "1"]], '"EXPIRE" must follow a command'),
        ([["SET", "k", "v"], ["HSET", "k", "f", "v"]], "made by commands that can't be combined"),
        ([["SET", "k", "v"], ["SET", "l", "v"], ["SET", "k", "w"]], "row 0 and row 2 make"),
    ],
)  # fmt: skip
def test_refused(commands: list[list[str]], words: str) -> None:
    serializer, _ = records([[word.encode() for word in each] for each in commands], 11)
    assert isinstance(serializer.error, fastresp.EncodeError)
    assert words in str(serializer.error)
    assert serializer.error.row == serializer.error.command == len(commands) - 1
