"""Values as servers store them, read and converted: every type and encoding, and damaged bytes."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from random import Random
from typing import Any

import pytest
import redis
from damaged_values import is_sound
from every_encoding import contents, differences, fill, knows_field_expiry
from hypothesis import given
from hypothesis import strategies as st
from payload_model import DISPUTED, FOOTER_BYTES, back_length, entry, length, listpack, string
from random_values import INTEGERS, NEARLY_INTEGERS, limits
from random_values import value as random_value
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.encode.payload.format import checksum, has_short_sizes
from fastresp.encode.payload.restorer import Restorer
from fastresp.encode.payload.stored_values import elements
from fastresp.outcome.errors import SourceError
from fastresp.server.local_server import LocalServer

# The servers at hand, and the RDB version of each.
RDB_VERSIONS = {
    "redis-6.2": 9, "redis-7.0": 10, "valkey-8.1": 11, "redis-8.2": 12, "valkey-9.1": 80,
}  # fmt: skip
PAIRS = [(source, target) for source in RDB_VERSIONS for target in RDB_VERSIONS if source != target]
# Hashes whose fields may expire.
TIMED = (22, 24, 25)
KINDS = {
    "redis-6.2": {12, 13, 14, 15},
    "redis-7.0": {16, 17, 18, 19},
    "valkey-8.1": {16, 17, 18, 20, 21},
    "redis-8.2": {16, 17, 18, 20, 21, 24, 25},
    "valkey-9.1": {16, 17, 18, 20, 21, 22},
}


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(servers: ExitStack, name: str) -> redis.Redis:
    """Start a server. Version 7.0 is this machine's own."""
    wheel = located(name, WHEEL_SERVERS) if name in WHEEL_SERVERS else None
    server = servers.enter_context(LocalServer(program=wheel or shutil.which("redis-server")))
    return redis.Redis.from_url(server.url)


def payload(kind: int, value: bytes, target: str) -> bytes:
    text = bytes([kind]) + value + struct.pack("<H", RDB_VERSIONS[target])
    return text + struct.pack("<Q", checksum(text))


def dumped(client: redis.Redis, key: bytes) -> tuple[int, bytes]:
    """Return the type and the bytes of a value."""
    found = client.dump(key)
    return found[0], found[1:-FOOTER_BYTES]


def filled(client: redis.Redis, compression: str) -> None:
    client.config_set("rdbcompression", compression)
    fill(client)
    client.rpush("list:integers", *INTEGERS, *NEARLY_INTEGERS)
    client.sadd("set:texts", *INTEGERS[:30], *NEARLY_INTEGERS)


def url(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def converter(source: str, target: str, field_ttl: Any = "keep") -> Restorer:
    return Restorer(
        RDB_VERSIONS[target],
        valkey=target.startswith("valkey"),
        source_valkey=source.startswith("valkey"),
        field_ttl=field_ttl,
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("compression", ["yes", "no"])
@pytest.mark.parametrize("name", RDB_VERSIONS)
def test_every_encoding(servers: ExitStack, name: str, compression: str) -> None:
    client = started(servers, name)
    filled(client, compression)
    kinds = set()
    for key, (kind, _, value) in contents(client).items():
        form, data = dumped(client, key)
        kinds.add(form)
        expected = {"zset": sorted, "stream": entries_of}.get(kind, lambda same: same)(value)
        assert as_contents(kind, form, elements(form, data)) == expected
        assert converter(name, name).to_target(form, data, check=True) == (form, data)
    assert kinds == {0, 2, 4, 5, 11} | KINDS[name]


def as_contents(kind: str, form: int, found: list[bytes]) -> Any:
    """Return elements as ``contents()`` returns them."""
    if kind in ("string", "list"):
        return found if kind == "list" else found[0]
    if kind == "set":
        return sorted(found)
    if kind == "zset":
        return sorted((member, repr(float(score))) for member, score in grouped(found, 2))
    if kind == "hash" and form in TIMED:
        return {field: (text, int(at)) for field, text, at in grouped(found, 3)}
    if kind == "hash":
        return {field: (text, -1) for field, text in grouped(found, 2)}
    pairs = grouped(found, 2)
    return [(number, dict(islice(pairs, int(count)))) for number, count in pairs]


def entries_of(stream: dict[str, Any]) -> Any:
    return stream["entries"]


def grouped(found: list[bytes], size: int) -> Iterator[tuple[bytes, ...]]:
    return zip(*(found[at::size] for at in range(size)), strict=True)


@pytest.mark.few(2)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_conversion(servers: ExitStack, source: str, target: str) -> None:
    """Every server accepts every value of every other server, and returns it."""
    reader, writer = started(servers, source), started(servers, target)
    with suppress(redis.ResponseError):  # Valkey 9.1 always checks payloads
        writer.config_set("sanitize-dump-payload", "yes")
    filled(reader, "yes")
    keep, drop = converter(source, target), converter(source, target, "drop")
    expected = contents(reader)
    for key, (kind, at, content) in expected.items():
        form, value = dumped(reader, key)
        if form in TIMED and not knows_field_expiry(writer):
            with pytest.raises(SourceError, match="drop the times to live with field_ttl='drop'"):
                keep.to_target(form, value)
            fields = {field: (text, -1) for field, (text, _) in content.items()}
            expected[key] = kind, at, fields
            found = drop.to_target(form, value)
        else:
            found = keep.to_target(form, value)
        assert found is not None
        writer.restore(key, max(at, 0), payload(*found, target), absttl=True)
    assert differences(expected, contents(writer)) == []
    assert (drop.expiries_dropped > 0) == (RDB_VERSIONS[source] >= 12 > RDB_VERSIONS[target])


@given(st.lists(st.binary(max_size=70) | st.sampled_from([*INTEGERS, *NEARLY_INTEGERS])))
def test_any_texts(texts: list[bytes]) -> None:
    """In a listpack, and one after another."""
    assert elements(20, string(listpack(texts))) == texts
    assert elements(1, length(len(texts)) + b"".join(map(string, texts))) == texts


@pytest.mark.parametrize("size", DISPUTED[:2])
def test_disputed_sizes(size: int) -> None:
    """Servers write the size of such an entry in different numbers of bytes; both are read."""
    text = b"x" * size
    old = entry(text)
    short = old[: size + 5] + bytes([127] + [255] * (len(back_length(size + 5)) - 2))
    for each in (old, short):
        packed = struct.pack("<IH", 9 + len(each), 2) + each + b"\1\1\xff"
        value = length(len(packed)) + packed
        assert elements(20, value) == [text, b"1"]
        for target in ("redis-8.2", "valkey-9.1"):
            expected = length(2) + string(text) + string(b"1")
            assert converter("valkey-9.1", target).to_target(20, value) == (2, expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("compression", ["yes", "no"])
@pytest.mark.parametrize("target", RDB_VERSIONS)
@pytest.mark.parametrize("source", ["redis-7.0", "redis-8.2", "valkey-9.1"])
def test_disputed_sizes_are_converted(
    servers: ExitStack, source: str, target: str, compression: str
) -> None:
    """Older servers crash when they read such an entry of Valkey 9.1."""
    reader, writer = started(servers, source), started(servers, target)
    text = b"x" * DISPUTED[0]
    reader.config_set("rdbcompression", compression)
    reader.config_set("hash-max-listpack-value", 1 << 20)
    reader.config_set("list-max-listpack-size", 100)
    reader.hset("hash", mapping={"a": text, "b": "c"})
    reader.rpush("list", "a", text, "c")
    for _ in range(3):
        reader.xadd("stream", {"a": text, "b": 1, text: "c"})
        reader.xadd("stream", {"a": 1, "b": text})
    reader.xgroup_create("stream", "group", "0")
    fastresp.copy(url(reader), url(writer))
    assert differences(contents(reader), contents(writer)) == []
    writer.lrange("list", 0, -1), writer.xrevrange("stream"), writer.save()
    with pytest.raises(SourceError, match=r"16,378.*; the target's way is unknown, so copy this"):
        converter(source, target).to_target(*dumped(reader, b"stream"))


@pytest.mark.parametrize(
    ("version", "valkey", "short"),
    [
        ("6.2.5", False, False), ("8.2.3", False, False), ("8.4.0", False, None),
        ("9.1.0", False, None), ("7.2.4", True, False), ("8.1.8", True, False),
        ("9.0.3", True, None), ("9.1.2", True, True), ("10.0.0", True, True), (None, True, None),
    ],
)  # fmt: skip
def test_has_short_sizes(version: str | None, valkey: bool, short: bool | None) -> None:
    assert has_short_sizes(version, valkey=valkey) is short


@pytest.mark.parametrize("check", [False, True])
def test_checks(check: bool) -> None:
    """What is inside of a compact form is read only on request."""
    damaged = b"\x09\x09\0\0\0\1\0\1\2\xff"
    made = converter("redis-8.2", "redis-8.2")
    if check:
        with pytest.raises(SourceError, match="an entry with the wrong size"):
            made.to_target(20, damaged, check=True)
    else:
        assert made.to_target(20, damaged) == (20, damaged)
    with pytest.raises(SourceError, match="ends early"):
        made.to_target(20, damaged[:9], check=check)


TWICE = "a field or member that occurs twice"
OUT_OF_ORDER = "not in the order of the times of expiry"
ZIPLIST = b"\x15\x15\0\0\0\x12\0\0\0\4\0\0\1a\3\xf2\2\1a\3\xf3\xff"


def expiring(*texts: bytes) -> bytes:
    return bytes(8) + string(listpack(texts))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (2, b"\3\1a\1b\1a", TWICE),
        (2, b"\2\0017\xc0\7", TWICE),
        (3, b"\2\1a\0011\1a\0012", TWICE),
        (4, b"\2\1a\1b\1a\1c", TWICE),
        (5, b"\2" + 2 * (b"\1a" + bytes(8)), TWICE),
        (9, b"\x0c\2\1a\1\0b\1a\1\0c\xff", TWICE),
        (12, ZIPLIST, TWICE),
        (13, ZIPLIST, TWICE),
        (16, string(listpack([b"a", b"1", b"a", b"2"])), TWICE),
        (17, string(listpack([b"7", b"1", b"7", b"2"])), TWICE),
        (20, string(listpack([b"%d" % (at % 300) for at in range(301)])), TWICE),
        (24, bytes(8) + b"\2" + 2 * b"\0\1a\1b", TWICE),
        (25, expiring(b"a", b"1", b"0", b"a", b"2", b"0"), TWICE),
        (25, expiring(b"a", b"1", b"20", b"b", b"2", b"10"), OUT_OF_ORDER),
        (25, expiring(b"a", b"1", b"0", b"b", b"2", b"10"), OUT_OF_ORDER),
        (11, b"\x0c\2\0\0\0\2\0\0\0\1\0\1\0", "an intset that is not in ascending order"),
        (11, b"\x0c\2\0\0\0\2\0\0\0\1\0\xff\xff", "an intset that is not in ascending order"),
    ],
)  # fmt: skip
def test_checks_of_names(kind: int, value: bytes, message: str) -> None:
    """Servers restore such a compact form, and crash at a later command."""
    made = converter("redis-8.2", "redis-8.2")
    for _ in range(2):
        with pytest.raises(SourceError, match=message):
            made.to_target(kind, value, check=True)
        assert made.to_target(4, b"\2\1a\1b\1c\1d", check=True) is not None
    with pytest.raises(SourceError, match=TWICE):
        converter("valkey-9.1", "valkey-9.1").to_target(22, b"\2" + 2 * EXPIRING[1:13], check=True)


def test_check_of_all_names() -> None:
    """Also of many names, in a time that is not quadratic."""
    texts = [b"%d" % at for at in range(20_000)]
    made = converter("valkey-9.1", "valkey-9.1")
    for kind, value in ((20, listpack), (2, None)):
        whole, again = (
            string(value(each)) if value else length(len(each)) + b"".join(map(string, each))
            for each in (texts, [*texts, b"7"])
        )
        assert made.to_target(kind, whole, check=True) == (kind, whole)
        with pytest.raises(SourceError, match=TWICE):
            made.to_target(kind, again, check=True)


def test_order_of_expiries(servers: ExitStack) -> None:
    """Redis keeps such a listpack in the order that is checked."""
    client, source = started(servers, "redis-8.2"), Random(1)
    made = converter("redis-8.2", "redis-8.2")
    for round_ in range(200):
        field = b"%d" % source.randrange(40)
        at = int(time.time() * 1000) + 10 ** source.choice((5, 8, 11)) * source.randint(1, 5)
        client.execute_command(
            *source.choice(
                [
                    ("HSET", "hash", field, round_),
                    ("HDEL", "hash", field),
                    ("HPERSIST", "hash", "FIELDS", 1, field),
                    ("HPEXPIREAT", "hash", at, "FIELDS", 1, field),
                    ("HSETEX", "hash", "PXAT", at, "FIELDS", 1, field, round_),
                    ("HSETEX", "hash", "KEEPTTL", "FIELDS", 1, field, round_),
                ]
            )
        )
        client.hset("hash", "other", 1)
        form, value = dumped(client, b"hash")
        assert made.to_target(form, value, check=True) == (form, value)
    assert form == 25 and {b"-1"} < set(elements(form, value)[2::3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RDB_VERSIONS)
def test_random_values(servers: ExitStack, name: str, seed: int) -> None:
    """Values that a server makes of random commands, with random limits of encodings."""
    client, source = started(servers, name), Random(seed)
    for number in range(40):
        client.config_set("rdbcompression", source.choice(("yes", "no")))
        for limit, most in limits(source).items():
            with suppress(redis.ResponseError):  # not in 6.2, or not in 7.0
                client.config_set(limit, most)
                client.config_set(limit.replace("listpack", "ziplist"), most)
        for at in range(5):
            for command in random_value(source, b"%d:%d" % (number, at)):
                client.execute_command(*command)
        for key, (kind, _, value) in contents(client).items():
            form, data = dumped(client, key)
            expected = sorted(value) if kind == "zset" else value
            assert as_contents(kind, form, elements(form, data)) == expected
            assert is_sound(form, data)
        client.flushall()


@pytest.mark.slow
def test_values_of_real_modules(module_server: LocalServer) -> None:
    client = redis.Redis.from_url(module_server.url)
    client.execute_command("JSON.SET", "json", "$", '{"a": [1, 2.5, "text", null, {"b": true}]}')
    client.execute_command("BF.ADD", "bloom", "a")
    client.execute_command("CMS.INITBYDIM", "sketch", 100, 5)
    client.execute_command("TOPK.RESERVE", "top", 5)
    for key in client.scan_iter():
        kind, value = dumped(client, key)
        passed = converter("redis-8.2", "redis-8.2").to_target(kind, value, check=True)
        assert passed == (kind, value) and kind == 7


# Values of types that servers no longer write, or write rarely.
OLD_VALUES = [
    (1, b"\2\1a\xc0\x0c", [b"a", b"12"]),
    (3, b"\4\1a\0031.5\1b\xfe\1c\xff\1d\0032e3", b"a 1.5 b inf c -inf d 2e3".split()),
    (9, b"\x11\2\1a\2\0xy\3foo\1\2b\0\0\xff", b"a xy foo b".split()),
    (10, b"\x10\x10\0\0\0\x0d\0\0\0\2\0\0\1a\3\xf2\xff", [b"a", b"1"]),
    (10, b"\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff", []),
]
MODULE_VALUE = b"\x81\0\0\0\0\0\0\0\7" + b"\1\x0a\2\x41\0\3abcd\4abcdefgh\5\2xy" + b"\0"
EXPIRING = b"\3\1a\1b" + b"\xff" * 8 + b"\1c\1d" + (10**12).to_bytes(8, "little") + b"\1e\1f"


@pytest.mark.parametrize(("kind", "value", "expected"), OLD_VALUES)
def test_old_types(kind: int, value: bytes, expected: list[bytes]) -> None:
    assert elements(kind, value) == expected
    assert converter("redis-8.2", "redis-6.2").to_target(kind, value) == (kind, value)


def test_modules() -> None:
    """Values of modules are passed on, and have no elements."""
    with pytest.raises(SourceError, match="has no elements"):
        elements(7, MODULE_VALUE)
    for size in range(len(MODULE_VALUE)):
        with pytest.raises(SourceError, match="a damaged module: it ends early at byte"):
            elements(7, MODULE_VALUE[:size])
    with pytest.raises(SourceError, match="unknown opcode of a module at byte 10"):
        elements(7, MODULE_VALUE[:9] + b"\6")
    assert converter("redis-8.2", "redis-6.2").to_target(7, MODULE_VALUE) == (7, MODULE_VALUE)


def test_expired_fields() -> None:
    """Without times to live, a field that has expired would exist again."""
    later = int((time.time() + 100) * 1000)
    drop = converter("valkey-9.1", "valkey-8.1", "drop")
    assert drop.to_target(22, EXPIRING + later.to_bytes(8, "little")) == (4, b"\2\1a\1b\1e\1f")
    assert (drop.expiries_dropped, drop.expired) == (1, 1)
    assert drop.to_target(22, b"\1\1c\1d" + (10**12).to_bytes(8, "little")) is None
    assert (drop.expiries_dropped, drop.expired) == (1, 2)
    assert drop.to_target(22, b"\1\1c\1d" + b"\xff" * 8) == (4, b"\1\1c\1d")


@pytest.mark.parametrize("kind", [-1, 6, 8, 22, 23, 26, 255])
def test_unknown_types(kind: int) -> None:
    """Type 22 is a hash of Valkey 9, and of release candidates of Redis 7.4."""
    with pytest.raises(SourceError, match=f"unknown type {kind}"):
        converter("redis-8.2", "valkey-9.1").to_target(kind, b"\0")
    if kind != 22:
        with pytest.raises(SourceError, match=f"unknown type {kind}"):
            elements(kind, b"\0")


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (0, b"\xc4", "a string of an unknown encoding"),
        (0, b"\x82", "a length of an unknown size"),
        (0, b"\x81" + b"\xff" * 8, "a string with an impossible size"),
        (0, b"\xc3\1\x80\x20\0\0\0a", "a compressed string with an impossible size"),
        (0, b"\xc3\3\3\0a\xe0", "a compressed string is damaged"),
        (0, b"\xc3\3\4\x60\0\0", "a compressed string is damaged"),
        (0, b"\1ab", "it ends at byte 2 of 3"),
        (2, b"\xc0\1", "a string instead of a number"),
        (3, b"\1\1a\3abc", "a score that is not a number"),
        (3, b"\1\1a\xfd", "a score that is not a number"),
        (5, b"\1\1a\0\0\0\0\0\0\xf8\x7f", "a score that is not a number"),
        (11, b"\xc0\1", "a node of an unknown kind"),
        (11, b"\x0a\2\0\0\0\2\0\0\0\1\0", "an intset with the wrong size"),
        (16, b"\x07\7\0\0\0\1\0\xff", "the wrong number of entries"),
        (16, b"\x09\x09\0\0\0\1\0\1\1\xff", "half an item"),
        (17, b"\x0c\x0c\0\0\0\2\0\1\1\x81a\2\xff", "a score that is not a number"),
        (20, b"\x09\x09\0\0\0\1\0\1\2\xff", "an entry with the wrong size"),
        (20, b"\x09\x09\0\0\0\1\0\x81\1\xff", "an entry beyond the end"),
        (20, b"\x08\x09\0\0\0\1\0\1\xff", "a compact form with the wrong size"),
        (22, b"\1\1a\1b" + b"\xfe" + b"\xff" * 7, "an impossible time of expiry"),
    ],
)
def test_messages(kind: int, value: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=f"{message}"):
        elements(kind, value)


@pytest.fixture(scope="module")
def samples() -> list[tuple[int, bytes]]:
    """Values of all types, of at most 3,000 bytes."""
    found = [(kind, value) for kind, value, _ in OLD_VALUES]
    with ExitStack() as stack:
        for name in ("redis-6.2", "redis-7.0", "redis-8.2", "valkey-9.1"):
            client = started(stack, name)
            filled(client, "yes")
            found += [dumped(client, key) for key in client.scan_iter()]
    return [(kind, value) for kind, value in found if len(value) <= 3000]


def test_truncated(samples: list[tuple[int, bytes]]) -> None:
    for kind, value in samples:
        for size in {*range(min(len(value), 100)), *Random(1).sample(range(len(value)), 1)}:
            with pytest.raises(SourceError, match="ends early at byte"):
                elements(kind, value[:size])


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(10))
def test_damaged(samples: list[tuple[int, bytes]], seed: int) -> None:
    source = Random(seed)
    assert all(is_sound(kind, value) for kind, value in samples)
    sound = 0
    for kind, value in samples:
        for _ in range(20):
            changed = bytearray(value)
            for _ in range(source.choice((1, 1, 2, 5))):
                at = source.randrange(len(value))
                changed[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
            sound += is_sound(kind, changed)
            is_sound(source.choice(samples)[0], changed)
    assert sound < 20 * len(samples)
