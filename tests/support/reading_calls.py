"""Every function of fastresp that reads replies, to run against a server that lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import fastresp
from fastresp import aio
from fastresp.encode.template import Template
from fastresp.load.dry_run import dry_run
from fastresp.transports.redis_cli import RedisCli

TIMEOUT_S = 0.5
# Replies are limited to less than the default, so that a flood ends soon.
BOUNDS: dict[str, Any] = {"timeout": TIMEOUT_S, "max_reply_bytes": 8 << 20}
ROWS = [(i, f"value {i}") for i in range(300)]
SCRIPT = fastresp.Script("return redis.call('SET', KEYS[1], ARGV[1])")


def load(url: str, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(
        ROWS, "SET k:{0} {1}", server=url, timeout=TIMEOUT_S, on_error="collect", **options
    )


def load_script(url: str) -> fastresp.Report:
    template = SCRIPT.command("k:{0}", "{1}")
    return fastresp.mass_insert(ROWS, template, server=url, transport="socket", timeout=TIMEOUT_S)


def load_aio(url: str) -> fastresp.Report:
    return asyncio.run(
        aio.mass_insert(ROWS, "SET k:{0} {1}", server=url, timeout=TIMEOUT_S, on_error="collect")
    )


def load_written(url: str) -> fastresp.Report:
    with RedisCli(url, timeout=TIMEOUT_S) as transport:
        transport.write(fastresp.pack_many(("SET", f"k:{i}", text) for i, text in ROWS))
    return transport.report


def replies(url: str) -> Any:
    return list(
        fastresp.iter_replies(
            ROWS, "GET k:{0}", server=url, on_error="collect", decode=True, **BOUNDS
        )
    )


def replies_aio(url: str) -> Any:
    async def main() -> Any:
        return [
            reply async for reply in aio.iter_replies(
                ROWS, "GET k:{0}", server=url, on_error="collect", **BOUNDS
            )
        ]  # fmt: skip

    return asyncio.run(main())


def one_command(url: str) -> Any:
    return fastresp.execute("GET", "k:1", server=url, **BOUNDS)


def one_command_aio(url: str) -> Any:
    return asyncio.run(aio.execute("GET", "k:1", server=url, **BOUNDS))


def hashes(url: str) -> Any:
    found = fastresp.fetch_hashes(["h:1", "h:2"], ["a", "b"], server=url, **BOUNDS)
    return [*found]


def hashes_found(url: str) -> Any:
    found = fastresp.fetch_hashes("h:{id}", ["a", "b"], server=url, **BOUNDS)
    return sorted([*found], key=str)


def unloaded(url: str, pattern: str, kind: str) -> Any:
    found = fastresp.unload(pattern, type=kind, ttl=True, server=url, timeout=TIMEOUT_S)
    return sorted([*found], key=str)


def push(url: str) -> Any:
    with fastresp.ListBuffer("pushed", server=url, timeout=TIMEOUT_S, maxlen=5) as buffer:
        return buffer.push(map(str, range(10)))


def pop(url: str) -> Any:
    with fastresp.ListBuffer("items", server=url, timeout=TIMEOUT_S) as buffer:
        items = buffer.pop(2)
        buffer.push(items)
        return items, buffer.pop_arrow(0).to_bytes(), len(buffer) > 0


def pop_arrow(url: str) -> Any:
    with fastresp.ListBuffer("more", server=url, timeout=TIMEOUT_S) as buffer:
        items = buffer.pop_arrow(2).to_bytes()
        buffer.push(items)
        return items


def consume(url: str) -> Any:
    options: Any = {"delivery": "at-least-once", "timeout": TIMEOUT_S}
    with fastresp.ListBuffer("safe", server=url, **options) as buffer:
        buffer.recover()
        items = list(buffer.consume(2))
        return items, buffer.ack(0)


def wait_for_items(url: str) -> Any:
    with fastresp.ListBuffer("nothing", server=url, timeout=TIMEOUT_S) as buffer:
        return list(buffer.consume(2, block=0.1))


def buffer_aio(url: str) -> Any:
    async def main() -> Any:
        async with aio.ListBuffer("aio", server=url, timeout=TIMEOUT_S) as buffer:
            items = await buffer.pop(2)
            await buffer.push(items)
            return items, await buffer.length() > 0

    return asyncio.run(main())


def look_ahead(url: str) -> Any:
    found = dry_run(ROWS, Template("SET k:{0} {1}"), url, timeout=TIMEOUT_S)
    return found.commands


def verified(url: str, template: str = "SET k:{0} {1}") -> fastresp.VerifyReport:
    rows = ROWS if template.startswith("SET") else [(i, f"a{i}", f"b{i}") for i in (1, 2)]
    return fastresp.verify(rows, template, server=url, **BOUNDS)


CALLERS: dict[str, Callable[[str], Any]] = {
    "mass_insert": lambda url: load(url, transport="socket"),
    "mass_insert, 4 connections": lambda url: load(url, transport="socket", connections=4),
    "mass_insert, redis-cli": lambda url: load(url, transport="redis-cli"),
    "mass_insert, script": load_script,
    "aio.mass_insert": load_aio,
    "RedisCli.write": load_written,
    "iter_replies": replies,
    "aio.iter_replies": replies_aio,
    "execute": one_command,
    "aio.execute": one_command_aio,
    "fetch_hashes": hashes,
    "fetch_hashes of a pattern": hashes_found,
    "unload": lambda url: unloaded(url, "h:{id}", "hash"),
    "unload of a stream": lambda url: unloaded(url, "log", "stream"),
    "push": push,
    "pop": pop,
    "pop_arrow": pop_arrow,
    "consume": consume,
    "consume, waiting": wait_for_items,
    "aio.ListBuffer": buffer_aio,
    "dry_run": look_ahead,
    "verify": verified,
    "verify of hashes": lambda url: verified(url, "HSET h:{0} a {1} b {2}"),
}
