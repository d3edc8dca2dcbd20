"""An online store for Feast that writes with fastresp, and reads like Feast's own Redis store.

Shows how to materialise features in the layout of another program: Feast reads the hashes with its
own, unchanged code. Put this file next to feature_store.yaml, which names it:

    online_store:
      type: fast_redis.FastRedisOnlineStore
      connection_string: localhost:6379

All options of Feast's Redis store work, including clusters. Then, as usual:

    feast materialize-incremental $(date -u +%Y-%m-%dT%H:%M:%S)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal

from feast import FeatureView, RepoConfig
from feast.infra.online_stores.helpers import _mmh3, _redis_key, compute_versioned_name
from feast.infra.online_stores.redis import RedisOnlineStore, RedisOnlineStoreConfig
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.utils import make_tzaware
from google.protobuf.timestamp_pb2 import Timestamp

import fastresp

Row = tuple[EntityKey, dict[str, Value], datetime, datetime | None]


class FastRedisOnlineStoreConfig(RedisOnlineStoreConfig):
    type: Literal["fast_redis.FastRedisOnlineStore"] = "fast_redis.FastRedisOnlineStore"


class FastRedisOnlineStore(RedisOnlineStore):
    """Feast's Redis store, whose writes go through ``fastresp.mass_insert``."""

    def online_write_batch(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[Row],
        progress: Callable[[int], Any] | None,
    ) -> None:
        """Write features of entities, unless the stored features are newer.

        Raises:
            fastresp.FastrespError: some features were not written; ``report`` has the counts.
        """
        store = config.online_store
        client = self._get_client(store)
        view = compute_versioned_name(table, config.registry.enable_online_feature_view_versioning)
        keys = [_redis_key(config.project, row[0], config.entity_key_serialization_version)
                for row in data]  # fmt: skip
        latest: dict[bytes, int] = {}
        if not store.skip_dedup:
            names = ((key, f"_ts:{view}") for key in keys)
            stored = fastresp.iter_replies(names, "HGET {0} {1}", server=client)
            latest = {
                key: Timestamp.FromString(time).ToNanoseconds()
                for key, time in zip(keys, stored, strict=True)
                if time is not None
            }
        template = "HSET {0} {*1}"
        if store.key_ttl_seconds:
            template += f"; EXPIRE {{0}} {store.key_ttl_seconds}"
        rows = _rows(keys, data, view, None if store.skip_dedup else latest)
        fastresp.mass_insert(rows, template, server=client, transport="socket")
        if progress:
            progress(len(data))


def _rows(
    keys: list[bytes], data: list[Row], view: str, latest: dict[bytes, int] | None
) -> Iterator[tuple[bytes, list[Any]]]:
    """Yield each key with its alternating fields and values; skip rows that are not newer.

    Args:
        latest: times of the stored rows, in nanoseconds; None to yield all rows.
    """
    fields: dict[str, bytes] = {}
    for key, (_, values, at, _) in zip(keys, data, strict=True):
        time = Timestamp()
        time.FromDatetime(make_tzaware(at))
        if latest is not None:
            if time.ToNanoseconds() <= latest.get(key, 0):
                continue
            latest[key] = time.ToNanoseconds()
        pairs: list[Any] = [f"_ts:{view}", time.SerializeToString()]
        for name, value in values.items():
            if name not in fields:
                fields[name] = _mmh3(f"{view}:{name}")
            pairs += fields[name], value.SerializeToString()
        yield key, pairs
