"""Keys of every type and encoding, and their contents as a client reads them.

``fill()`` makes the keys that a server knows. ``contents()`` reads each key in full, so that
``differences()`` can compare two servers even if they store a value in different encodings.
"""

from __future__ import annotations

import random
from typing import Any

import redis

__all__ = ["contents", "differences", "expires_ms", "fill", "knows_field_expiry"]

# 2100-01-01 in milliseconds, with a fraction of a second.
FAR_MS = 4_102_444_800_123
# Bytes of a value that is longer than a node of a list and than a value of a listpack.
LONG = 20_000
# Parts of XINFO STREAM since Redis 7.0 and 7.2, which older servers do not store.
SINCE_7_0 = {"entries-added", "max-deleted-entry-id", "recorded-first-entry-id"}
GROUP_SINCE_7_0 = {"entries-read", "lag"}
CONSUMER_SINCE_7_2 = {"active-time"}
# Parts that depend on the encoding.
ENCODED = {"radix-tree-keys", "radix-tree-nodes"}
# Precision of the time of expiry in milliseconds: servers before 7.0 return only the time to live.
EXACT_MS = 1


def knows_field_expiry(client: redis.Redis) -> bool:
    """Return whether fields of hashes can expire: Redis 7.4, Valkey 9."""
    try:
        client.execute_command("HPTTL", "no key", "FIELDS", 1, "field")
    except redis.ResponseError:
        return False
    return True


def fill(client: redis.Redis, seed: int = 1) -> None:
    """Make keys of every type and encoding that the server knows."""
    source = random.Random(seed)
    _strings(client, source)
    _lists(client, source)
    _sets(client)
    _sorted_sets(client)
    _hashes(client, source)
    _streams(client)
    for key in ("string", "list", "set", "zset", "hash", "stream"):
        client.pexpireat(key, FAR_MS + len(key))


def _strings(client: redis.Redis, source: random.Random) -> None:
    client.set("string", "x" * 30)
    client.set("string:empty", "")
    client.set(b"string:\x00\xff\r\n{odd} key", bytes(range(256)))
    client.set("string:repeats", "abc" * 5000)
    client.set("string:random", source.randbytes(100_000))
    for number in (0, -1, 127, -128, 32767, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)):
        client.set(f"string:{number}", number)
    client.set("string:not a number", "007")
    client.setbit("bits", 100_000, 1)
    client.pfadd("hyperloglog:sparse", *range(50))
    client.pfadd("hyperloglog:dense", *range(20_000))


def _lists(client: redis.Redis, source: random.Random) -> None:
    client.rpush("list", "a", "", 1, -(1 << 40), "x" * 100)
    client.rpush("list:nodes", *(source.randbytes(50) for _ in range(3000)))
    client.rpush("list:long", "a", source.randbytes(LONG), "y" * LONG, "b")
    client.rpush("list:numbers", *range(-3000, 3000))


def _sets(client: redis.Redis) -> None:
    client.sadd("set", "a", "", 1)
    client.sadd("set:16 bits", *range(-50, 50))
    client.sadd("set:32 bits", 1, 1 << 20, -(1 << 31))
    client.sadd("set:64 bits", 1, 1 << 40, -(1 << 63))
    client.sadd("set:many numbers", *range(2000))
    client.sadd("set:table", *(f"member {index}" for index in range(2000)))


def _sorted_sets(client: redis.Redis) -> None:
    scores = {"a": 1.5, "": 0, "7": -2, "inf": float("inf"), "-inf": float("-inf"), "small": 1e-300}
    client.zadd("zset", scores)
    client.zadd("zset:table", {f"member {index}": index / 3 for index in range(2000)})
    client.zadd("zset:long", {"m" * 5000: 1, "b": 1e17})
    client.geoadd("geo", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))


def _hashes(client: redis.Redis, source: random.Random) -> None:
    client.hset("hash", mapping={"a": 1, "": "empty", "x": "", "7": -(1 << 33), "b": "text" * 10})
    client.hset("hash:table", mapping={f"field {index}": "v" * 70 for index in range(600)})
    client.hset("hash:long", mapping={"a": source.randbytes(LONG), "b": "z" * LONG})
    if knows_field_expiry(client):
        for key in ("hash:expiring", "hash:expiring table"):
            count = 3 if key == "hash:expiring" else 700
            client.hset(key, mapping={f"field {index}": f"value {index}" for index in range(count)})
            for index in range(0, count, 2):
                at = FAR_MS + 1000 * index
                client.execute_command("HPEXPIREAT", key, at, "FIELDS", 1, f"field {index}")


def _streams(client: redis.Redis) -> None:
    client.xadd("stream", {"a": 1, "b": ""}, id="5-1")
    for index in range(1, 400):
        fields: dict[Any, Any] = {"a": index, "b": "x" * index}
        if index % 7 == 0:
            fields["other"] = index
        client.xadd("stream:groups", fields, id=f"{1_700_000_000_000 + index}-{index}")
    client.xdel("stream:groups", *(f"{1_700_000_000_000 + n}-{n}" for n in (1, 2, 50, 399)))
    client.xgroup_create("stream:groups", "all", "0")
    client.xgroup_create("stream:groups", "new", "$")
    client.xgroup_create("stream:groups", b"odd\xff group", "1700000000100-0")
    for consumer in ("one", "two"):
        client.xreadgroup("all", consumer, {"stream:groups": ">"}, count=20)
    client.xack("stream:groups", "all", "1700000000003-3")
    client.xgroup_createconsumer("stream:groups", "all", "idle")
    client.xgroup_create("stream:empty", "group", "$", mkstream=True)
    client.xadd("stream:deleted", {"a": 1}, id="9-9")
    client.xdel("stream:deleted", "9-9")


def contents(client: redis.Redis) -> dict[bytes, Any]:
    """Return the type, the time of expiry in ms (-1 for none) and the value of each key.

    Args:
        client: a client that returns bytes.
    """
    return {key: _content(client, key) for key in sorted(client.scan_iter(count=1000))}


def _content(client: redis.Redis, key: bytes) -> tuple[Any, ...]:
    kind = client.type(key).decode()
    return kind, expires_ms(client, key), READERS[kind](client, key)


def expires_ms(client: redis.Redis, key: bytes) -> int:
    """Return a key's expiry in ms, negative if none; before Redis 7.0, it may be off by 1 ms."""
    try:
        return int(client.execute_command("PEXPIRETIME", key))
    except redis.ResponseError:
        (seconds, fraction), left = client.pipeline().time().pttl(key).execute()
        return left if left < 0 else seconds * 1000 + fraction // 1000 + left


def differences(
    source: dict[bytes, Any], target: dict[bytes, Any], exact_ms: int = EXACT_MS
) -> list[str]:
    """Return the differences between the contents of two servers, one text per key.

    Times of expiry may differ by ``exact_ms``.
    """
    found = [f"{key!r} is missing" for key in source.keys() - target.keys()]
    found += [f"{key!r} is new" for key in target.keys() - source.keys()]
    for key in source.keys() & target.keys():
        (kind, at, value), (other_kind, other_at, other) = source[key], target[key]
        if kind == "stream" == other_kind:
            value, other = _common(value, other), _common(other, value)
        if (kind, value) != (other_kind, other) or abs(at - other_at) > exact_ms:
            both = [f"{each!r:.200}" for each in ((kind, at, value), (other_kind, other_at, other))]
            found.append(f"{key!r}: {both[0]} != {both[1]}")
    return sorted(found)


def _common(stream: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a stream that servers of all versions store."""
    if stream.keys() & other.keys() >= SINCE_7_0:
        return stream
    groups = [_without(group, GROUP_SINCE_7_0) for group in stream["groups"]]
    return {**_without(stream, SINCE_7_0), "groups": groups}


def _without(parts: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if name not in names}


def _sorted_set(client: redis.Redis, key: bytes) -> list[tuple[bytes, str]]:
    members = client.zrange(key, 0, -1, withscores=True)
    return [(member, repr(score)) for member, score in members]


def _hash(client: redis.Redis, key: bytes) -> dict[bytes, tuple[bytes, int]]:
    fields = client.hgetall(key)
    expiries = [-1] * len(fields)
    if fields and knows_field_expiry(client):
        expiries = client.execute_command("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
    return {field: (value, at) for (field, value), at in zip(fields.items(), expiries, strict=True)}


def _stream(client: redis.Redis, key: bytes) -> dict[str, Any]:
    """Return the entries of a stream, and its groups with their consumers and pending entries."""
    return {"entries": client.xrange(key), **_info(client, key)}


def _info(client: redis.Redis, key: bytes) -> dict[str, Any]:
    info = _named(client.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    groups = [_named(group) for group in info["groups"]]
    for group in groups:
        consumers = [_named(each) for each in group["consumers"]]
        group["consumers"] = [_without(each, CONSUMER_SINCE_7_2) for each in consumers]
    return {**_without(info, ENCODED | {"entries"}), "groups": groups}


def _named(items: Any) -> dict[str, Any]:
    """Return a reply of XINFO as a dict, as RESP2 and RESP3 servers send it."""
    pairs = items.items() if isinstance(items, dict) else zip(items[::2], items[1::2], strict=True)
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in pairs}


READERS: dict[str, Any] = {
    "string": lambda client, key: client.get(key),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "set": lambda client, key: sorted(client.smembers(key)),
    "zset": _sorted_set,
    "hash": _hash,
    "stream": _stream,
}
