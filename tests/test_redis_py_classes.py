"""speed_up with a user's own connection classes, packers and encoders: all are still called."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from redis.connection import Encoder, PythonRespSerializer

from fastresp.redis_py import CommandPacker, fast, speed_up
from fastresp.server.local_server import LocalServer

CALLS: list[str] = []


def of_tenant(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the command with a tenant's prefix on its key."""
    return (args[0], f"tenant:{args[1]}", *args[2:]) if args[0] in ("SET", "GET") else args


class TracedSend:
    """Record the names of the commands sent."""

    def send_command(self, *args: Any, **kwargs: Any) -> Any:
        CALLS.append(f"send {args[0]}")
        return super().send_command(*args, **kwargs)  # type: ignore[misc]


class OldSend:
    """Send like an old redis-py, through its own pack_command."""

    def send_command(self, *args: Any, **kwargs: Any) -> Any:
        CALLS.append(f"old {args[0]}")
        return self.send_packed_command(self.pack_command(*args))  # type: ignore[attr-defined]


class TracedBytes:
    """Record the bytes that are sent."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> Any:
        CALLS.append(f"bytes {sum(map(len, command))}")
        return super().send_packed_command(command, check_health)  # type: ignore[misc]


class TenantCommand:
    def pack_command(self, *args: Any) -> Any:
        CALLS.append(f"pack {args[0]}")
        return super().pack_command(*of_tenant(args))  # type: ignore[misc]


class TenantCommands:
    def pack_commands(self, commands: Iterable[Any]) -> Any:
        CALLS.append("pack several")
        return super().pack_commands(map(of_tenant, commands))  # type: ignore[misc]


class TenantPacker(CommandPacker):
    def pack(self, *args: Any) -> list[bytes]:
        CALLS.append(f"packer {args[0]}")
        return super().pack(*of_tenant(args))


class TenantSerializer(PythonRespSerializer):
    def pack(self, *args: Any) -> Any:
        CALLS.append(f"serializer {args[0]}")
        return super().pack(*of_tenant(args))


class OwnPacker:
    """Choose its own packer."""

    def _construct_command_packer(self, packer: Any) -> Any:
        return TenantPacker()


class ShoutingEncoder(Encoder):  # type: ignore[misc, unused-ignore]
    def encode(self, value: Any) -> Any:
        CALLS.append(f"encode {value}")
        return super().encode(value.upper() if isinstance(value, str) else value)


MIXINS = [TracedSend, OldSend, TracedBytes, TenantCommand, TenantCommands]
OPTIONS: dict[str, Callable[[], Any]] = {
    "packer": TenantPacker,
    "serializer": lambda: TenantSerializer(6000, redis.Connection().encoder.encode),
}


def derived(base: type[Any], *mixins: type[Any]) -> type[Any]:
    return type("Own", (*mixins, base), {})


def outcome(server: LocalServer, faster: bool, **options: Any) -> tuple[list[str], dict[Any, Any]]:
    """Return the calls that a client's connections get, and the keys that it writes."""
    with redis.Redis.from_url(server.url) as plain:
        plain.flushall()
        with redis.Redis.from_url(server.url, **options) as client:
            client.ping()  # an existing connection
            if faster:
                assert speed_up(speed_up(client)) is client
            CALLS.clear()
            client.set("a", 1)
            for transaction in (False, True):
                with client.pipeline(transaction=transaction) as pipeline:
                    pipeline.set("b", "é").set("c", 1.5).get("b").execute()
            client.connection_pool.disconnect()
            client.set("d", b"x")  # and one opened afterwards
        return list(CALLS), {key: plain.get(key) for key in sorted(plain.keys())}  # type: ignore[type-var]


async def outcome_async(
    server: LocalServer, faster: bool, **options: Any
) -> tuple[list[str], dict[Any, Any]]:
    with redis.Redis.from_url(server.url) as plain:
        plain.flushall()
        pool: Any = redis.asyncio.ConnectionPool.from_url(server.url, **options)
        pool.connection_class = options.get("connection_class", pool.connection_class)
        async with redis.asyncio.Redis(connection_pool=pool) as client:
            await client.ping()
            if faster:
                assert speed_up(speed_up(client)) is client
            CALLS.clear()
            await client.set("a", 1)
            for transaction in (False, True):
                async with client.pipeline(transaction=transaction) as pipeline:
                    await pipeline.set("b", "é").set("c", 1.5).get("b").execute()
            await client.connection_pool.disconnect()
            await client.set("d", b"x")
        return list(CALLS), {key: plain.get(key) for key in sorted(plain.keys())}  # type: ignore[type-var]


@pytest.mark.parametrize("mixin", MIXINS)
def test_own_class(server: LocalServer, mixin: type[Any]) -> None:
    own = derived(redis.UnixDomainSocketConnection, mixin)
    expected = outcome(server, False, connection_class=own)
    assert outcome(server, True, connection_class=own) == expected
    assert outcome(server, False, connection_class=fast(own)) == expected
    own = derived(redis.asyncio.UnixDomainSocketConnection, mixin)
    expected = asyncio.run(outcome_async(server, False, connection_class=own))
    assert asyncio.run(outcome_async(server, True, connection_class=own)) == expected
    assert asyncio.run(outcome_async(server, False, connection_class=fast(own))) == expected
    assert expected[0] != []


@pytest.mark.parametrize("name", OPTIONS)
def test_own_packer(server: LocalServer, name: str) -> None:
    expected = outcome(server, False, command_packer=OPTIONS[name]())
    assert set(expected[1]) == {b"tenant:a", b"tenant:b", b"tenant:c", b"tenant:d"}
    assert outcome(server, True, command_packer=OPTIONS[name]()) == expected


def test_class_that_chooses_its_packer(server: LocalServer) -> None:
    own = derived(redis.UnixDomainSocketConnection, OwnPacker)
    expected = outcome(server, False, connection_class=own)
    assert len(expected[1]) == 4 and b"tenant:a" in expected[1]
    assert outcome(server, True, connection_class=own) == expected


def test_own_encoder_in_asyncio(server: LocalServer) -> None:
    expected = asyncio.run(outcome_async(server, False, encoder_class=ShoutingEncoder))
    assert set(expected[1]) == {b"A", b"B", b"C", b"D"}
    assert asyncio.run(outcome_async(server, True, encoder_class=ShoutingEncoder)) == expected


def factories(base: type[Any]) -> list[Callable[..., Any]]:
    def make(**kwargs: Any) -> Any:
        CALLS.append("made")
        return derived(base, TracedSend)(**kwargs)

    return [make, functools.partial(base, health_check_interval=5)]


def test_factory_as_connection_class(server: LocalServer) -> None:
    path = str(server.socket)
    for make in factories(redis.UnixDomainSocketConnection):
        for faster in (make, fast(make), fast(fast(make))):
            pool = redis.ConnectionPool(connection_class=faster, path=path)  # type: ignore[arg-type]
            with speed_up(redis.Redis(connection_pool=pool)) as client:
                assert client.set("a", np.int64(5))  # type: ignore[arg-type]
                with client.pipeline() as pipeline:
                    assert pipeline.set("a", 6).get("a").execute() == [True, b"6"]
            pool.disconnect()

    async def main() -> None:
        for make in factories(redis.asyncio.UnixDomainSocketConnection):
            for faster in (make, fast(make)):
                pool = redis.asyncio.ConnectionPool(connection_class=faster, path=path)  # type: ignore[arg-type, var-annotated]
                client: Any = speed_up(redis.asyncio.Redis(connection_pool=pool))
                assert await client.set("a", np.int64(5))
                async with client.pipeline() as pipeline:
                    assert await pipeline.set("a", 6).get("a").execute() == [True, b"6"]
                await pool.disconnect()

    asyncio.run(main())
    assert CALLS.count("made") >= 4


def test_pipelines_of_own_classes_are_packed_at_once() -> None:
    """If the user's class passes them on: in one call, and with our types."""
    for base in (redis.Connection, redis.asyncio.Connection):
        own = fast(derived(base, TracedSend, TracedBytes, TenantCommands))
        (packed,) = own().pack_commands([("SET", "a", np.int64(5))] * 2)
        assert packed == b"*3\r\n$3\r\nSET\r\n$8\r\ntenant:a\r\n$1\r\n5\r\n" * 2


def test_class_that_is_not_a_redis_py_connection() -> None:
    class Other:
        def __init__(self, **kwargs: Any) -> None:
            pass

    pool = redis.ConnectionPool(connection_class=Other)  # type: ignore[arg-type]
    for attempt in (fast, lambda kind: speed_up(pool)):
        with pytest.raises(TypeError, match=r"Other is not a subclass of .*leave out speed_up\(\)"):
            attempt(Other)
    assert pool.connection_class is Other  # type: ignore[comparison-overlap]
