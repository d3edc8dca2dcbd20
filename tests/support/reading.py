"""All replies of a source as a list, sync and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import fastresp
import fastresp.aio

__all__ = ["Execute", "execute_asyncio", "execute_sync"]

Execute: TypeAlias = Callable[..., list[Any]]


def execute_sync(data: Any, command: Any = None, **options: Any) -> list[Any]:
    return list(fastresp.iter_replies(data, command, **options))


def execute_asyncio(data: Any, command: Any = None, **options: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [reply async for reply in fastresp.aio.iter_replies(data, command, **options)]

    return asyncio.run(collect())
