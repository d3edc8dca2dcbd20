"""All replies of a source, one reply, and all rows of hashes: sync and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import fastresp
import fastresp.aio

__all__ = [
    "Execute", "Fetch", "execute_asyncio", "execute_one", "execute_one_asyncio", "execute_sync",
    "fetch_asyncio", "fetch_sync",
]  # fmt: skip

Execute: TypeAlias = Callable[..., list[Any]]
Fetch: TypeAlias = Callable[..., list[dict[str, Any]]]


def execute_sync(data: Any, command: Any = None, **options: Any) -> list[Any]:
    return list(fastresp.iter_replies(data, command, **options))


def execute_asyncio(data: Any, command: Any = None, **options: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [reply async for reply in fastresp.aio.iter_replies(data, command, **options)]

    return asyncio.run(collect())


def execute_one(*arguments: Any, **options: Any) -> Any:
    return fastresp.execute(*arguments, **options)


def execute_one_asyncio(*arguments: Any, **options: Any) -> Any:
    return asyncio.run(fastresp.aio.execute(*arguments, **options))


def fetch_sync(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    batches = list(fastresp.fetch_hashes(*arguments, **options).batches())
    return [row for batch in batches for row in pa.record_batch(batch).to_pylist()]


def fetch_asyncio(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    async def collect() -> list[dict[str, Any]]:
        return [row async for row in fastresp.aio.fetch_hashes(*arguments, **options)]

    return asyncio.run(collect())
