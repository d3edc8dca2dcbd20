"""Keys of every type with times to live, and the templates that load them from rows and unloads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from every_encoding import expires_ms

from fastresp.replies.unload import FIRST_ENTRIES

__all__ = ["TEMPLATES", "TEXTS", "rows_of", "stored"]

TEXTS = [
    "Ann", "", 'say "hi"', "a,b", "line\nline\r\n", "Zoë 😀", "null", "00123", "\0", "x" * 10_000,
]  # fmt: skip
# More entries than the first request and two further requests read.
MANY = 3 * FIRST_ENTRIES + 7
EXPIRY = "; PEXPIREAT k:{id} {expires_at!ms}"
TEMPLATES = {
    "string": "SET k:{id} {value}" + EXPIRY,
    "json": "JSON.SET k:{id} $ {value}" + EXPIRY,
    "hash": "HSET k:{id} {**-expires_at}" + EXPIRY,
    "set": "SADD k:{id} {member}" + EXPIRY,
    "zset": "ZADD k:{id} {score} {member}" + EXPIRY,
    "list": "RPUSH k:{id} {item}" + EXPIRY,
    "stream": "XADD k:{id} {entry_id} {**-expires_at}" + EXPIRY,
}


def rows_of(kind: str) -> list[dict[str, Any]]:
    """Return rows of small and large keys of a type; each second key expires."""
    rows: list[dict[str, Any]]
    if kind == "string":
        rows = [{"id": i, "value": text} for i, text in enumerate(TEXTS)]
    elif kind == "json":
        documents = ['{"a":[1,1.5,null,true],"b":{"c":"ü\\n"}}', "[]", '"text"', "123", "{}"]
        rows = [{"id": i, "value": text} for i, text in enumerate(documents)]
    elif kind == "hash":
        rows = [{"id": i, "a": text, "b": text if i % 3 else None} for i, text in enumerate(TEXTS)]
    elif kind == "set":
        rows = [{"id": 0, "member": text} for text in TEXTS]
        rows += [{"id": 1, "member": f"member {i}"} for i in range(MANY)]
        rows += [{"id": i % 20 + 2, "member": str(i)} for i in range(100)]
    elif kind == "zset":
        scores = [float("inf"), float("-inf"), 1e300, -0.1, 1 / 3]
        rows = [{"id": 0, "score": s, "member": str(i)} for i, s in enumerate(scores)]
        rows += [{"id": 1, "score": i / 3, "member": f"member {i}"} for i in range(MANY)]
        rows += [{"id": i % 20 + 2, "score": i, "member": TEXTS[i % 10]} for i in range(100)]
    elif kind == "list":
        rows = [{"id": 0, "item": text} for text in TEXTS + TEXTS]
        rows += [{"id": 1, "item": i % 100} for i in range(MANY)]
        rows += [{"id": i % 20 + 2, "item": i} for i in range(100)]
    else:
        rows = [{"id": i % 20 + 2, "entry_id": f"{i}-{i % 3}", "a": "x"} for i in range(1, 100)]
        rows += [{"id": 0, "entry_id": f"0-{i}", "a": t} for i, t in enumerate(TEXTS, 1)]
        rows += [{"id": 1, "entry_id": f"17{i}-7", "b": i} for i in range(1000, 1000 + MANY)]
        rows = [{"a": None, "b": None} | row for row in rows]
    start = datetime(2100, 1, 1, tzinfo=UTC)
    for row in rows:
        number = int(row["id"])
        later = timedelta(days=number, milliseconds=7 * number + 1)
        row["expires_at"] = start + later if number % 2 else None
    return rows


def stored(client: redis.Redis, pattern: str = "k:*") -> dict[bytes, tuple[Any, int]]:
    """Return the value and the expiry of each key (ms since 1970; negative for never)."""
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": client.get,
        b"ReJSON-RL": lambda key: client.execute_command("JSON.GET", key),
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"stream": lambda key: client.execute_command("XRANGE", key, "-", "+"),
    }
    return {
        key: (read[client.type(key)](key), expires_ms(client, key))
        for key in client.scan_iter(pattern)
    }
