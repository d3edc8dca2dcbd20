"""speed_up() with valkey-py: its clients, pools and connection classes, sync and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from needed import imported

from fastresp.redis_py import CommandPacker, fast, speed_up
from fastresp.server.local_server import LocalServer

valkey = imported("valkey")
imported("valkey.asyncio")

# Only fastresp packs it.
OURS: Any = np.int64(5)


@pytest.mark.parametrize("used", [False, True])
def test_client(server: LocalServer, used: bool) -> None:
    with valkey.Valkey.from_url(server.url) as client:
        if used:
            client.ping()
        assert speed_up(speed_up(client)) is client
        assert client.set("a", OURS) is True
        for transaction in (False, True):
            with client.pipeline(transaction=transaction) as pipeline:
                for i in range(1_000):
                    pipeline.set(f"k{i}", OURS)
                assert pipeline.get("a").execute() == [True] * 1_000 + [b"5"]
        for bad in (None, True, object()):
            with pytest.raises(valkey.DataError, match="Invalid input of type"):
                client.set("a", bad)
            with pytest.raises(valkey.DataError), client.pipeline() as pipeline:
                pipeline.set("a", bad).execute()
        assert client.register_script("return ARGV[1]")(args=[OURS]) == b"5"


def test_pool_and_connection_classes(server: LocalServer) -> None:
    class Tenant(valkey.UnixDomainSocketConnection):  # type: ignore[misc, name-defined]
        def pack_commands(self, commands: Iterable[Any]) -> Any:
            return super().pack_commands((name, f"t:{key}", *rest) for name, key, *rest in commands)

    pool = valkey.ConnectionPool.from_url(server.url, connection_class=Tenant)
    pool.connection_class = Tenant
    assert speed_up(pool) is pool
    with valkey.Valkey(connection_pool=pool) as client:
        with client.pipeline(transaction=False) as pipeline:
            assert pipeline.set("a", OURS).execute() == [True]
        assert client.get("t:a") == b"5"
    pool.disconnect()
    assert fast(valkey.Connection).__name__ == "FastConnection"
    with valkey.Valkey.from_url(server.url, command_packer=CommandPacker()) as client:
        assert client.set("a", OURS)


def test_asyncio_client(server: LocalServer) -> None:
    async def main() -> None:
        for used in (False, True):
            client = valkey.asyncio.Valkey.from_url(server.url)
            if used:
                await client.ping()
            assert speed_up(client) is client
            assert await client.set("a", OURS) is True
            for transaction in (False, True):
                async with client.pipeline(transaction=transaction) as pipeline:
                    pipeline.set("b", OURS).get("a")
                    assert await pipeline.execute() == [True, b"5"]
            with pytest.raises(valkey.DataError):
                await client.set("a", None)
            await client.aclose()

    asyncio.run(main())
