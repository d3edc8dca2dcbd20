"""RDB files: every opcode, files of every server, and damaged files."""

from __future__ import annotations

import random
import re
from functools import partial
from io import BytesIO

import pytest
from payload_model import FOOTER_BYTES
from rdb_files import EXPIRES_MS, RDB_VERSIONS, every_opcode, finished, read_every_way, saved

from fastresp.outcome.errors import SourceError
from fastresp.sources.files.rdb import KeyBatch, RdbReader, type_of

pairs = partial(zip, strict=True)
COMPRESSED = b"a" * 18


def batches(data: bytes, **options: object) -> tuple[RdbReader, list[KeyBatch]]:
    reader = RdbReader(BytesIO(data).read, **options)  # type: ignore[arg-type]
    found = []
    while (batch := reader.batch()) is not None:
        found.append(batch)
    return reader, found


def test_every_opcode() -> None:
    reader, [first, second] = batches(finished(every_opcode()))
    assert (reader.version, reader.valkey, reader.keys) == (11, False, 6)
    assert reader.aux == {b"redis-ver": b"7.2.5", b"redis-bits": b"64"}
    assert [text[:14] for text in reader.functions] == [b"#!lua name=one"]
    assert first.database == 0
    assert first.keys == [b"ms", b"s", b"frequency", b"idle", b"12345"]
    assert first.expires == [EXPIRES_MS, 2_000_000_000_000, -1, -1, -1]
    assert first.values[0] == b"\x00\x03one"
    assert first.types == [0, 0, 0, 0, 1]
    assert list(map(type_of, first.types)) == ["string"] * 4 + ["list"]
    assert [1 + size for size in first.sizes] == list(map(len, first.values))
    assert (second.database, second.keys) == (10, [COMPRESSED])
    assert reader.batch() is None


def test_valkey_header_and_slot_migration() -> None:
    body = b"\xf3\x04name\x02\x05\x06\x07\x40\x80" + every_opcode()
    reader = batches(finished(body, b"VALKEY080"))[0]
    assert (reader.version, reader.valkey, reader.keys) == (80, True, 6)
    with pytest.raises(SourceError, match="damaged at byte 9: an opcode is unknown"):
        batches(finished(body))


def test_small_reads() -> None:
    """The reader asks for many bytes, but a pipe may return few."""
    whole = batches(finished(every_opcode()))[1]
    for size in range(1, 20):
        file = BytesIO(finished(every_opcode()))
        reader = RdbReader(lambda wanted: file.read(min(wanted, size)))  # noqa: B023
        assert [reader.batch(), reader.batch()] == whole
        assert reader.batch() is None


@pytest.mark.parametrize(
    ("options", "keys", "counts"),
    [
        ({"match": "?s"}, [b"ms"], (5, 0, 0)),
        ({"match": "*"}, [b"ms", b"s", b"frequency", b"idle", b"12345", COMPRESSED], (0, 0, 0)),
        ({"match": "[f-m]*[!-y]", "database": 0}, [b"ms", b"frequency", b"idle"], (2, 0, 1)),
        ({"match": "12345"}, [b"12345"], (5, 0, 0)),
        ({"type": "list"}, [b"12345"], (0, 5, 0)),
        ({"type": "list", "match": "*s*"}, [], (4, 2, 0)),
        ({"database": 10}, [COMPRESSED], (0, 0, 5)),
    ],
)
def test_wanted_keys(
    options: dict[str, object], keys: list[bytes], counts: tuple[int, int, int]
) -> None:
    reader, found = batches(finished(every_opcode()), **options)
    assert [key for batch in found for key in batch.keys] == keys
    assert (reader.unmatched, reader.other_types, reader.other_databases) == counts
    assert reader.keys == 6


@pytest.mark.parametrize(
    "glob", ["a*b", "*", "a?c", "[^a]*", "[a-c]b*", "\\*", "a\\", "*a*b*a", ""]
)
def test_globs_match_as_in_a_server(glob: str) -> None:
    source = random.Random(3)
    keys = ["".join(source.choices("abc*\\", k=source.randrange(6))) for _ in range(300)]
    body = b"\xfe\x00" + b"".join(b"\x00%c%s\x00" % (len(key), key.encode()) for key in keys)
    found = [key.decode() for batch in batches(finished(body), match=glob)[1] for key in batch.keys]
    glob = glob + "\\" if glob.endswith("\\") else glob
    special = {"*": ".*", "?": "."}
    pieces = re.findall(r"\\.|\[\^?[^]]*\]|.", glob)
    regex = "".join(
        special.get(piece, piece if len(piece) > 1 else re.escape(piece)) for piece in pieces
    )
    assert found == [key for key in keys if re.fullmatch(regex, key)]


@pytest.mark.few(2)
@pytest.mark.parametrize("compression", ["yes", "no"])
@pytest.mark.parametrize("name", RDB_VERSIONS)
def test_values_are_those_of_dump(name: str, compression: str) -> None:
    options = ("--rdbcompression", compression, "--maxmemory-policy", "allkeys-lfu")
    with saved(name, *options) as (client, path):
        reader, found = batches(path.read_bytes())
        assert reader.version == RDB_VERSIONS[name]
        values = {key: value for each in found for key, value in pairs(each.keys, each.values)}
        assert values.keys() == set(client.scan_iter())
        for key, value in values.items():
            assert value == client.dump(key)[:-FOOTER_BYTES]
        expires = {key: time for each in found for key, time in pairs(each.keys, each.expires)}
        for key in ("string", "hash", "stream"):
            assert abs(expires[key.encode()] - 4_102_444_800_123 - len(key)) < 1


def test_truncated_at_every_byte() -> None:
    data = finished(every_opcode())
    for size in range(len(data)):
        with pytest.raises(SourceError) as caught:
            batches(data[:size])
        message = str(caught.value)
        assert (
            "not an RDB file" if size < 9 else f"truncated: it ends at byte {size:,}"
        ) in message
    assert f"key 6, '{COMPRESSED.decode()}', is the last whole one" in message


def test_whole_keys_come_before_the_error() -> None:
    reader = RdbReader(BytesIO(finished(every_opcode())[:-20]).read)
    first = reader.batch()
    assert first is not None
    assert len(first.keys) == 5
    wrong = finished(every_opcode())[:-1] + b"\x01"
    reader = RdbReader(BytesIO(wrong).read)
    found = [reader.batch(), reader.batch()]
    assert [len(batch.keys) for batch in found if batch is not None] == [5, 1]
    with pytest.raises(SourceError, match="the checksum of the file is wrong"):
        reader.batch()


def test_flipped_bits() -> None:
    data = finished(every_opcode())
    assert batches(data[:-8] + bytes(8))[1] == batches(data)[1], "0 means no checksum"
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(SourceError, match=r"byte|begins|version"):
                batches(bytes(damaged))


def test_lengths_beyond_the_end_need_no_memory() -> None:
    for length in (b"\x81\x7f" + b"\xff" * 7, b"\x81" + b"\xff" * 8, b"\x80\xff\xff\xff\xff"):
        with pytest.raises(SourceError):
            batches(finished(b"\xfe\x00\x00\x01k" + length))
        with pytest.raises(SourceError):
            batches(finished(b"\xfe\x00\x01\x01k" + length + b"\x01a"))


def test_more_bytes_after_the_end() -> None:
    with pytest.raises(SourceError, match="more bytes follow the snapshot, which ends at byte"):
        batches(finished(every_opcode()) + b"*1\r\n$4\r\nPING\r\n")


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (b"REDIS0013", "RDB version 13 is unknown"),
        (b"REDIS0000", "RDB version 0 is unknown"),
        (b"VALKEY081", "RDB version 81 is unknown"),
        (b"REDIS0x11", "not an RDB file"),
        (b'{"a": 1}\n', "not an RDB file"),
    ],
)
def test_other_files(head: bytes, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        batches(finished(b"", head))
    with pytest.raises(SourceError, match=f"^dump.rdb: {problem}"):
        batches(finished(b"", head), name="dump.rdb")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_damage(seed: int) -> None:
    """Damage is an error, or changes a value; nothing else happens, without a checksum either."""
    with saved("redis-8.2") as (_, path):
        data = path.read_bytes()[:-8] + bytes(8)
    source = random.Random(seed)
    whole = read_every_way(data)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(source.choice((1, 1, 1, 5, 50))):
            damaged[source.randrange(9, len(data))] = source.choice((0, 255, source.randrange(256)))
        assert read_every_way(bytes(damaged)) <= whole + 50
