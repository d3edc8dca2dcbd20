"""speed_up() with cluster clients of redis-py and valkey-py, while slots and nodes change."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import redis
from local_cluster import SLOTS, LocalCluster
from moving_lists import slot_of

from fastresp.redis_py import speed_up

LIBRARIES = ["redis", "valkey"]
KEYS = [f"key:{i}" for i in range(300)]
# Only fastresp packs this command, so it shows which packer was used.
OURS: Any = np.int64(5)


def client_of(library: str, cluster: LocalCluster, **options: Any) -> Any:
    """Return a sync or asyncio cluster client of redis or valkey."""
    module = importlib.import_module(library)
    name = "ValkeyCluster" if library.startswith("valkey") else "RedisCluster"
    return getattr(module, name)(host="127.0.0.1", port=cluster.ports[0], **options)


def data_error(library: str) -> type[Exception]:
    error: type[Exception] = importlib.import_module(library.partition(".")[0]).DataError
    return error


def use(client: Any, library: str) -> None:
    """Run commands and pipelines on all nodes, all packed by fastresp."""
    for key in KEYS[::10]:
        assert client.set(key, OURS) is True
        assert client.get(key) == b"5"
    with client.pipeline() as pipeline:
        for i, key in enumerate(KEYS):
            pipeline.set(key, i).incrby(key, OURS)
        assert pipeline.execute() == [x for i in range(len(KEYS)) for x in (True, i + 5)]
    assert client.get(KEYS[-1]) == b"304"
    assert client.mset_nonatomic(dict.fromkeys(KEYS, "é"))
    assert client.mget_nonatomic(KEYS) == ["é".encode()] * len(KEYS)
    with pytest.raises(data_error(library)):
        client.set("a", None)
    with client.pipeline() as pipeline, pytest.raises(data_error(library)):
        pipeline.set("a", object()).execute()


async def use_async(client: Any, library: str) -> None:
    for key in KEYS[::10]:
        assert await client.set(key, OURS) is True
        assert await client.get(key) == b"5"
    async with client.pipeline() as pipeline:
        for i, key in enumerate(KEYS):
            pipeline.set(key, i).incrby(key, OURS)
        assert await pipeline.execute() == [x for i in range(len(KEYS)) for x in (True, i + 5)]
    assert await client.get(KEYS[-1]) == b"304"
    assert await client.mset_nonatomic(dict.fromkeys(KEYS, "é"))
    with pytest.raises(data_error(library)):
        await client.set("a", None)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("library", LIBRARIES)
def test_all_nodes(cluster: LocalCluster, library: str, used: bool) -> None:
    """Connections that were already open are included."""
    with client_of(library, cluster) as client:
        if used:
            for key in KEYS[:50]:
                client.set(key, "x")
        assert speed_up(client) is client
        for _ in range(2):
            use(client, library)
            client.nodes_manager.initialize()
        assert min(cluster.sizes()) > 0
        client.disconnect_connection_pools()
        use(speed_up(client), library)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("library", LIBRARIES)
def test_all_nodes_in_asyncio(cluster: LocalCluster, library: str, used: bool) -> None:
    async def main() -> None:
        client = client_of(f"{library}.asyncio", cluster)
        if used:
            for key in KEYS[:50]:
                await client.set(key, "x")
        assert speed_up(client) is client
        for _ in range(2):
            await use_async(client, library)
            await client.nodes_manager.initialize()
        assert min(cluster.sizes()) > 0
        await client.aclose()
        if library == "redis":  # valkey refuses a closed client
            await use_async(speed_up(client), library)
            await client.aclose()

    asyncio.run(main())


def test_transactions(cluster: LocalCluster) -> None:
    with speed_up(redis.RedisCluster.from_url(cluster.url)) as client:
        with client.pipeline(transaction=True) as pipeline:
            pipeline.set("{t}a", OURS).incrby("{t}b", OURS).get("{t}a")
            assert pipeline.execute()[1:] == [5, b"5"]
        with client.pipeline(transaction=True) as pipeline:
            pipeline.watch("{t}a")
            pipeline.multi()
            assert pipeline.incrby("{t}a", OURS).execute() == [10]

    async def main() -> None:
        client = speed_up(client_of("redis.asyncio", cluster))
        async with client, client.pipeline(transaction=True) as pipeline:
            pipeline.set("{t}a", OURS).incrby("{t}b", OURS).get("{t}a")
            assert (await pipeline.execute())[1:] == [10, b"5"]

    asyncio.run(main())


def move(cluster: LocalCluster, number: int) -> None:
    """Move the slots of some keys to the next node."""
    for key in KEYS[number::30]:
        slot = slot_of(cluster, key)
        source = next(each for each in range(3) if cluster.serves(each, slot))
        cluster.move_slot(slot, (source + 1) % 3)


@pytest.mark.parametrize("library", LIBRARIES)
def test_slots_that_move(cluster: LocalCluster, library: str) -> None:
    with speed_up(client_of(library, cluster)) as client:
        for number in range(3):
            use(client, library)
            move(cluster, number)
        use(client, library)
        slot = slot_of(cluster, "{t}")
        if library == "redis":
            for transaction in (True, False):
                source = next(each for each in range(3) if cluster.serves(each, slot))
                cluster.move_slot(slot, (source + 1) % 3)
                with client.pipeline(transaction=transaction) as pipeline:
                    assert pipeline.set("{t}a", OURS).get("{t}a").execute()[1] == b"5"


@pytest.mark.parametrize("library", LIBRARIES)
def test_slots_that_move_in_asyncio(cluster: LocalCluster, library: str) -> None:
    async def main() -> None:
        client = speed_up(client_of(f"{library}.asyncio", cluster))
        for number in range(3):
            await use_async(client, library)
            await asyncio.to_thread(move, cluster, number)
        await use_async(client, library)
        await client.aclose()

    asyncio.run(main())


@contextmanager
def grown() -> Iterator[tuple[LocalCluster, Any]]:
    """Yield a cluster, and a function that adds a node to it, with the slots of all keys."""
    with LocalCluster(2) as cluster, LocalCluster(1) as other:
        fresh = other.clients[0]
        fresh.execute_command("CLUSTER", "DELSLOTS", *range(SLOTS))
        fresh.execute_command("CLUSTER", "RESET", "HARD")
        everyone = LocalCluster(3)
        everyone.clients = [*cluster.clients, fresh]
        everyone.ports = [*cluster.ports, *other.ports]

        def grow() -> None:
            cluster.clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", other.ports[0])
            everyone.until(lambda each: everyone.state(each, "cluster_known_nodes") == "3")
            everyone.until(lambda each: everyone.state(each, "cluster_state") == "ok")
            for key in KEYS[:20]:
                everyone.move_slot(slot_of(cluster, key), 2)

        yield cluster, grow
        assert fresh.dbsize() >= 20


@pytest.mark.few(1)
@pytest.mark.parametrize("library", LIBRARIES)
def test_nodes_that_are_added(library: str) -> None:
    with grown() as (cluster, grow), speed_up(client_of(library, cluster)) as client:
        use(client, library)
        grow()
        use(client, library)
        assert len(client.get_primaries()) == 3


@pytest.mark.few(1)
@pytest.mark.parametrize("library", LIBRARIES)
def test_nodes_that_are_added_in_asyncio(library: str) -> None:
    async def main(cluster: LocalCluster, grow: Any) -> None:
        client = speed_up(client_of(f"{library}.asyncio", cluster))
        await use_async(client, library)
        await asyncio.to_thread(grow)
        await use_async(client, library)
        assert len(client.get_primaries()) == 3
        await client.aclose()

    with grown() as (cluster, grow):
        asyncio.run(main(cluster, grow))


@pytest.mark.parametrize("library", LIBRARIES)
def test_connections_that_are_lost(cluster: LocalCluster, library: str) -> None:
    with speed_up(client_of(library, cluster)) as client:
        use(client, library)
        for each in cluster.clients:
            each.client_kill_filter(_type="normal", skipme=True)
        use(client, library)


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:.*read_from_replicas:DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
def test_replicas_are_fast_too(library: str) -> None:
    with LocalCluster(2, 1) as cluster:
        cluster.until_synced()
        with speed_up(client_of(library, cluster, read_from_replicas=True)) as client:
            deadline = time.monotonic() + 20
            while len(client.get_replicas()) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                client.nodes_manager.initialize()
            assert all(client.set(key, OURS) for key in KEYS[:20])
            for primary in cluster.clients[:2]:
                assert primary.wait(1, 10_000) == 1
            for _ in range(4):  # the primary and the replica of each key take turns
                assert {client.getbit(key, OURS) for key in KEYS[:20]} == {1}
            for replica in cluster.clients[2:]:
                assert replica.info("commandstats")["cmdstat_getbit"]["calls"] > 0


def test_publish_and_subscribe(cluster: LocalCluster) -> None:
    with speed_up(client_of("redis", cluster)) as client, client.pubsub() as pubsub:
        pubsub.subscribe("channel")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        client.publish("channel", "héllo")
        assert pubsub.get_message(timeout=5)["data"] == "héllo".encode()


def test_text_in_another_encoding(cluster: LocalCluster) -> None:
    """The bytes equal the library's own; redis-py with hiredis sends UTF-8."""
    for library in LIBRARIES:
        with client_of(library, cluster, encoding="latin-1") as client:
            client.set("plain", "é")
            expected = client.get("plain")
        with speed_up(client_of(library, cluster, encoding="latin-1")) as client:
            client.set("a", "é")
            with client.pipeline() as pipeline:
                assert pipeline.set("b", "é").get("a").execute()[1] == expected
            assert client.get("b") == expected
