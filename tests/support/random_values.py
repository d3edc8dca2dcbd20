"""Random commands that create values, and random limits of a server's compact encodings."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fastresp.encode.payload.format import Format
from fastresp.encode.payload.serializer import Serializer
from fastresp.encode.writer import CHUNK_BYTES, Writer

Command = list[bytes]

VERBS = (b"HSET", b"SADD", b"ZADD", b"RPUSH", b"LPUSH")
# Beyond the range of each integer encoding: 8, 13, 16, 24, 32 and 64 bits.
INTEGERS = [
    b"%d" % (sign * (1 << bits) + by)
    for bits in (0, 7, 8, 12, 13, 15, 16, 23, 24, 31, 32, 33, 62, 63, 64)
    for sign in (1, -1)
    for by in (-1, 0, 1)
]
NEARLY_INTEGERS = [
    b"", b"-", b"-0", b"00", b"007", b"-07", b"+1", b" 1", b"1 ", b"1\0", b"1.0", b"1e3", b"0x1",
    b"99999999999", b"-9999999999", b"-99999999999", b"99999999999999999999",
    b"18446744073709551617", b"-18446744073709551615", b"184467440737095516160",
]  # fmt: skip
# Sizes of texts around limits: of a listpack's text encodings, of its back length, of a list's
# node.
SHORT = (62, 63, 64, 65, 66, 123, 124, 125, 126, 127, 128)
LONG = (
    4080, 4090, 4094, 4095, 4096, 4097, 8170, 8180, 8183, 8184, 8185, 8191, 8192, 8193,
    16370, 16376, 16377, 16378, 16379, 16380, 16383, 16384, 20_000,
)  # fmt: skip
COUNTS = (100, 126, 127, 128, 129, 130, 200, 300, 510, 511, 512, 513, 514, 600)
SCORES = (
    b"inf", b"-inf", b"+inf", b"0.0", b"0.1", b"-0.1", b"1e17", b"1e-7", b"1e21", b"1e22", b"1e23",
    b"-1.5e-5", b"00012.50", b"0.00001", b"4503599627370495", b"4503599627370496",
    b"9007199254740993", b"-9007199254740993", b"123456789012345678", b"4611686018427387903",
    b"4611686018427387904", b"9223372036854775807", b"1e99", b"-1e-99", b"3", b"5e-1",
)  # fmt: skip
ENTRIES = (0, 1, 2, 5, 30, 128, 512, 513, 1000)
VALUE_BYTES = (0, 1, 10, 63, 64, 65, 127, 4096, 20_000)
NODES = (-1, -2, -3, -4, -5, 0, 1, 2, 7, 128, 600, 40_000)


def limits(source: Random) -> dict[str, int]:
    """Return limits for ``Format()``: all limits, or those that differ from the defaults."""
    found = {"set-max-intset-entries": source.choice(ENTRIES)}
    for kind in ("hash", "set", "zset"):
        found[f"{kind}-max-listpack-entries"] = source.choice(ENTRIES)
        found[f"{kind}-max-listpack-value"] = source.choice(VALUE_BYTES)
    found["list-max-listpack-size"] = source.choice(NODES)
    return found


def text(source: Random) -> bytes:
    kind = source.random()
    if kind < 0.12:
        return source.choice(INTEGERS)
    if kind < 0.3:
        return b"%d" % source.randint(-(10 ** source.choice((2, 4, 5, 8, 12, 19))), 10**9)
    if kind < 0.35:
        return source.choice(NEARLY_INTEGERS)
    if kind < 0.93:
        return source.randbytes(source.choice((1, 2, 3, 8, 20, 30)))
    if kind < 0.993:
        return b"x" * source.choice(SHORT)
    return b"y" * source.choice(LONG)


def score(source: Random) -> bytes:
    """Return a score except -0, whose sign is lost where a server stores scores as text."""
    kind = source.random()
    if kind < 0.3:
        return b"%d" % source.randint(-5, 5)
    if kind < 0.6:
        return repr(source.random() * 10 ** source.randint(-12, 20)).encode()
    if kind < 0.7:
        return source.choice(SCORES)
    if kind < 0.9:
        return b"%d.%d" % (source.choice((-100, -7, 1, 9, 55)), source.randint(0, 999))
    return b"%d" % source.randint(-(2**62), 2**62)


def value(source: Random, key: bytes) -> list[Command]:
    """Return the commands that create one value; items repeat within and across commands."""
    verb = source.choice(VERBS)
    count = source.choice((1, 2, 3, 10, 30) if source.random() < 0.93 else COUNTS)
    if source.random() < 0.3:
        most = 10 ** source.choice((2, 5, 8, 12))
        pool = [b"%d" % source.randint(-most, most) for _ in range(count)]
    else:
        pool = [text(source) for _ in range(source.choice((3, 10, 40)))]
    others = source.choice((0, 0, 0.1, 0.5))  # not from the pool
    commands = []
    while count > 0:
        size = min(count, source.choice((1, 1, 1, 2, 5, 100, 300, 600)))
        count -= size
        items = [
            text(source) if source.random() < others else source.choice(pool) for _ in range(size)
        ]
        if verb == b"HSET":
            items = [each for item in items for each in (item, text(source))]
        elif verb == b"ZADD":
            items = [each for item in items for each in (score(source), item)]
        commands.append([verb, key, *items])
    return commands


def restores(
    commands: Iterable[Command], encodings: Format, chunk_bytes: int = CHUNK_BYTES
) -> list[Command]:
    """Return the RESTOREs that store the same values as the commands."""
    serializer = Serializer(encodings, max_bytes=1 << 40)
    chunks = []
    for chunk in Writer(chunk_bytes=chunk_bytes).chunks(commands):
        chunks += serializer.serialize(chunk)
    chunks += serializer.finish()
    if serializer.error is not None:
        raise serializer.error
    return [words for chunk in chunks for words in words_of(bytes(chunk))]


def words_of(data: bytes) -> Iterable[Command]:
    """Yield the commands of RESP."""
    at = 0
    while at < len(data):
        words: Command = []
        after = data.index(b"\r\n", at)
        count, at = int(data[at + 1 : after]), after + 2
        for _ in range(count):
            after = data.index(b"\r\n", at)
            size, at = int(data[at + 1 : after]), after + 2
            words.append(data[at : at + size])
            at += size + 2
        yield words
