"""Values of every type and encoding in servers of several versions, as clients see them."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterable
from random import Random
from typing import Any

import redis
from server_programs import WHEEL_SERVERS, located

from fastresp.encode.payload.format import checksum

# The servers at hand, and the RDB version of each.
RDB_VERSIONS = {
    "redis-6.2": 9, "redis-7.0": 10, "valkey-8.1": 11, "redis-8.2": 12, "valkey-9.1": 80,
}  # fmt: skip
FOOTER_BYTES = 10
FIELD_TTL_MS = 1_000_000


def program(name: str) -> str | None:
    """Return the path of a server's program. Version 7.0 is this machine's own server."""
    return located(name, WHEEL_SERVERS) if name in WHEEL_SERVERS else shutil.which("redis-server")


def has_field_ttl(name: str) -> bool:
    return RDB_VERSIONS[name] >= 12


def payload(kind: int, value: bytes, rdb_version: int) -> bytes:
    text = bytes([kind]) + value + struct.pack("<H", rdb_version)
    return text + struct.pack("<Q", checksum(text))


def fill(client: redis.Redis, name: str, source: Random) -> None:
    """Create values, with and without compression."""
    for compression in ("yes", "no"):
        client.config_set("rdbcompression", compression)
        prefix = f"{compression}:"
        texts = [
            "",
            "a",
            "x" * 63,
            "y" * 64,
            "z" * 5000,
            *map(str, integers()),
            source.randbytes(90),
        ]
        for i, each in enumerate(texts):
            client.set(f"{prefix}string{i}", each)
        small: list[Any] = ["a", "x" * 40, *integers()[:60]]
        large = [source.randbytes(8).hex() * source.choice((1, 30)) for _ in range(700)]
        for size, items in (("small", small), ("large", large + texts)):
            client.rpush(f"{prefix}list:{size}", *items)
            client.sadd(f"{prefix}set:{size}", *items)
            client.zadd(f"{prefix}zset:{size}", {each: score(source) for each in items})
            client.hset(
                f"{prefix}hash:{size}", mapping=dict(zip(items, reversed(items), strict=True))
            )
        client.sadd(f"{prefix}integers", *integers()[: 1 + 2 * source.randrange(2, 40)])
        client.rpush(f"{prefix}long", "v" * 20_000, "w", source.randbytes(9000))
        stream(client, f"{prefix}stream", source)
        if has_field_ttl(name):
            for size, items in (("small", small[:20]), ("large", large[:200])):
                expiring(client, f"{prefix}expiring:{size}", items)


def integers() -> list[int]:
    """Return numbers around the limits of each integer encoding."""
    return [
        sign * (1 << bits) + by
        for bits in (0, 3, 6, 7, 8, 12, 13, 15, 16, 23, 24, 31, 32, 62)
        for sign in (1, -1)
        for by in (-1, 0, 1)
    ]


def score(source: Random) -> float:
    return source.choice((1.5, -0.1, 3, 1e300, float("inf"), float("-inf"), source.random()))


def stream(client: redis.Redis, key: str, source: Random) -> None:
    """Create a stream with deleted entries, groups, consumers and pending entries."""
    for i in range(250):
        names = ("a", "b", "12") if source.random() < 0.8 else ("c",)
        client.xadd(
            key, dict.fromkeys(names, f"{i}" * source.choice((1, 30))), id=f"{i + 5}-{i % 3}"
        )
    client.xdel(key, "5-0", "77-0", "254-0")
    client.xgroup_create(key, "group", "0")
    client.xgroup_create(key, "idle", "$")
    client.xreadgroup("group", "first", {key: ">"}, count=20)
    client.xreadgroup("group", "second", {key: ">"}, count=5)
    client.xack(key, "group", "6-1", "8-0")


def expiring(client: redis.Redis, key: str, items: list[Any]) -> None:
    """Create a hash of which every third field expires."""
    client.hset(key, mapping={each: each for each in items})
    at = int(time.time() * 1000) + FIELD_TTL_MS
    for i, each in enumerate(items[::3]):
        client.execute_command("HPEXPIREAT", key, at + i * i, "FIELDS", 1, each)


def contents(client: redis.Redis, key: bytes) -> object:
    """Return all of a value that clients can read, apart from consumers' idle times."""
    kind = client.type(key)
    if kind == b"string":
        return client.get(key)
    if kind == b"list":
        return client.lrange(key, 0, -1)
    if kind == b"set":
        return client.smembers(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    if kind == b"hash":
        return client.hgetall(key)
    groups = client.xinfo_groups(key)
    for group in groups:  # Redis 6.2 has neither of these
        group.pop("entries-read", None)
        group.pop("lag", None)
    pending = [
        (each["message_id"], each["consumer"], each["times_delivered"])
        for group in groups
        for each in client.xpending_range(key, group["name"], "-", "+", 1000)
    ]
    last = client.xinfo_stream(key)["last-generated-id"]
    return client.xrange(key), last, groups, sorted(pending)


def expiries(client: redis.Redis, key: bytes) -> dict[bytes, int]:
    """Return when each field of a hash expires, in ms; -1 for never."""
    fields: list[bytes] = sorted(client.hkeys(key))
    times = client.execute_command("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
    return dict(zip(fields, times, strict=True))


def flat(client: redis.Redis, key: bytes) -> list[bytes] | None:
    """Return the elements of a value in the order of the server; None if they have no order."""
    kind = client.type(key)
    if kind == b"string":
        return [client.get(key)]
    if kind == b"list":
        return client.lrange(key, 0, -1)
    if kind == b"stream":
        found: list[bytes] = []
        for number, fields in client.xrange(key):
            found += (
                number,
                b"%d" % len(fields),
                *(word for pair in fields.items() for word in pair),
            )
        return found
    return None


def groups_of(items: list[bytes], size: int) -> Iterable[tuple[bytes, ...]]:
    return zip(*(items[at::size] for at in range(size)), strict=True)
