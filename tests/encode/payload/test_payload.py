"""Serialised values against the values of each server after the same commands, byte for byte.

Each server gets the commands in database 0, and RESTORE of our payloads in database 1. A payload
equals DUMP wherever the encoding keeps an order. A hash table has a random order; the payload
then has the same items. Redis 6.2 writes ziplists, which we don't: there, DUMP of the restored
key must equal DUMP of the native one. The same holds for entry sizes that versions write
differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest
import redis
from payload_model import (
    DISPUTED,
    FOOTER_BYTES,
    PLAIN,
    PLAIN_HASH,
    PLAIN_SET,
    SORTED_SET_LISTPACK,
    listpack_entries,
    unordered,
)
from random_values import VERBS, Command, limits, restores, value
from server_programs import need
from twice import SERVERS, debugged

import fastresp
from fastresp.encode.payload.format import DEFAULTS, Format

# Rounds in one batch, with the same settings of the server.
BATCH = 250
# RDB versions of 7.0 and 7.2.
LISTPACKS, SET_LISTPACKS = 10, 11
# From 7.2 on, scores in listpacks have the fewest digits, or one more: Grisu2 does not always find
# the fewest. Our scores always have the fewest.
SHORT_SCORES = 11


class Pair:
    """A server with native values in one database, and restored ones in another."""

    def __init__(self, url: str) -> None:
        self.urls = url, f"{url}?db=1"
        self.native, self.restored = map(redis.Redis.from_url, self.urls)
        self.native.config_set("rdbcompression", "no")
        self.native.set("any", "x")
        self.rdb_version = int.from_bytes(self.native.dump("any")[-FOOTER_BYTES:][:2], "little")
        # Scores compared in listpacks, and scores with other digits.
        self.scores = self.other_scores = 0

    def close(self) -> None:
        self.native.close()
        self.restored.close()

    def configure(self, limits: dict[str, int]) -> Format:
        """Set the limits of the server's encodings; return its format."""
        for name, number in (DEFAULTS | limits).items():
            if self.rdb_version < SET_LISTPACKS and name.startswith("set-max-listpack"):
                continue
            if self.rdb_version < LISTPACKS:
                name = name.replace("listpack", "ziplist")
            self.native.config_set(name, number)
        return Format(self.rdb_version, limits)

    def check(self, values: dict[bytes, list[Command]], limits: dict[str, int]) -> None:
        """Load values both ways, and compare the two databases."""
        self.native.flushall()
        encodings = self.configure(limits)
        commands = [command for each in values.values() for command in each]
        payloads = restores(commands, encodings)
        assert [words[1] for words in payloads] == list(values)
        fastresp.mass_insert(commands, server=self.urls[0], transport="socket")
        try:
            fastresp.mass_insert(payloads, server=self.urls[1], transport="socket")
        except fastresp.LoadErrors as error:
            failed = list(values)[error.report.errors[0].row]
            raise AssertionError(f"{limits}, {str(values[failed])[:2000]}") from error
        native, restored = (state(each, list(values)) for each in (self.native, self.restored))
        for (key, made), words, theirs, ours in zip(
            values.items(), payloads, native, restored, strict=True
        ):
            try:
                assert ours.digest == theirs.digest
                if is_disputed_set(made, limits):
                    continue
                self.compare(made, words[3], theirs.dump, ours.dump)
                if ours.encoding != theirs.encoding:
                    assert ours.encoding == self.encoding_again(theirs.dump)
            except AssertionError as error:
                raise AssertionError(f"{limits}, {key!r}: {str(made)[:2000]}") from error

    def encoding_again(self, native: bytes) -> bytes:
        """Return the encoding of a native value after DUMP and RESTORE.

        A value with a large item that was replaced is not a listpack; RESTORE makes it one.
        """
        self.restored.restore("again", 0, native)
        found: bytes = self.restored.object("encoding", "again")
        self.restored.delete("again")
        return found

    def sanitize(self, how: str) -> None:
        """Set how strictly the server checks payloads; Valkey 9.1 always checks everything."""
        if self.native.config_get("sanitize-dump-payload"):
            self.native.config_set("sanitize-dump-payload", how)

    def compare(self, made: list[Command], payload: bytes, native: bytes, restored: bytes) -> None:
        """Compare a payload with DUMP of the native key, or of the restored key."""
        if native[0] in (PLAIN_SET, PLAIN_HASH):
            assert unordered(payload) == unordered(native)
            assert payload[-FOOTER_BYTES:-8] == native[-FOOTER_BYTES:-8]
        elif payload[0] in PLAIN and payload[0] != native[0]:
            assert self.rdb_version < LISTPACKS or is_disputed(made)
            # A list without nodes is loaded from its head; LPUSH fills nodes from the tail.
            assert restored == native or (made[0][0] == b"LPUSH" and native[1] > 1)
        elif native[0] == SORTED_SET_LISTPACK:
            self.compare_scores(payload, native)
        else:
            assert payload == native

    def compare_scores(self, payload: bytes, native: bytes) -> None:
        ours, theirs = list(listpack_entries(payload)), list(listpack_entries(native))
        self.scores += len(theirs) // 2
        if payload == native:
            return
        assert self.rdb_version >= SHORT_SCORES
        assert payload[0] == native[0] and ours[::2] == theirs[::2]
        for (_, score), (_, other) in zip(ours[1::2], theirs[1::2], strict=True):
            assert float(score) == float(other) and len(score) <= len(other)
            self.other_scores += score != other


def is_disputed(made: list[Command]) -> bool:
    """Return whether some servers would refuse a listpack of these commands."""
    return any(len(word) in DISPUTED for command in made for word in command)


def is_disputed_set(made: list[Command], limits: dict[str, int]) -> bool:
    """Return whether it is a plain set too large for an intset, loaded as a hash table."""
    members = {member for command in made for member in command[2:]}
    most = limits.get("set-max-intset-entries", DEFAULTS["set-max-intset-entries"])
    return made[0][0] == b"SADD" and len(members) > most and is_disputed(made)


class State(NamedTuple):
    digest: bytes
    encoding: bytes
    dump: bytes


def state(client: redis.Redis, keys: list[bytes]) -> list[State]:
    """Return the server's state of each key."""
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.object("encoding", key)
        pipe.dump(key)
    found = pipe.execute()
    digests = client.execute_command("DEBUG", "DIGEST-VALUE", *keys)
    return list(map(State, digests, found[::2], found[1::2]))


@pytest.fixture(scope="module", params=SERVERS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    need("server")
    with debugged(request.param) as server:
        pair = Pair(server.url)
        yield pair
        pair.close()


@pytest.mark.parametrize(
    "count",
    [
        400,
        pytest.param(5_000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_random_values(pair: Pair, count: int) -> None:
    """Our values equal the server's; half of the batches use the default limits."""
    pair.scores = pair.other_scores = 0
    for batch in range(0, count, BATCH):
        source = Random(f"{batch} of {count}")
        pair.sanitize(source.choice(("yes", "no")))
        values = {}
        for index in range(min(BATCH, count - batch)):
            key = b"%d" % index if source.random() < 0.9 else source.randbytes(9) + b"%d" % index
            values[key] = value(source, key)
        pair.check(values, limits(source) if batch // BATCH % 2 else {})
    assert pair.native.info("stats")["dump_payload_sanitizations"] > 0
    print(f"{count:,} values; {pair.other_scores:,} of {pair.scores:,} scores have other digits")
    assert pair.scores > 0 or pair.rdb_version < LISTPACKS
    assert pair.other_scores <= 2 + pair.scores // 100


@pytest.mark.few(12)
@pytest.mark.parametrize("max_integers", [0, 1, 3, 4, 5, 600])
@pytest.mark.parametrize("max_entries", [0, 3, 4, 5, 600])
def test_sets_of_integers(pair: Pair, max_integers: int, max_entries: int) -> None:
    """The first command's arguments, including repeats, decide a set's first encoding."""
    sets = [
        [["47"] * 4],
        [["4", "3", "2", "1"]],
        [["4", "3", "2", "1", "a"]],
        [["4"], ["3"], ["2"], ["1"]],
        [["4"], ["3"], ["2"], ["1"], ["a"]],
        [["4", "4"], ["3", "2", "1"]],
        [["4", "4", "4", "4"], ["3", "2", "1"], ["a"]],
        [["4", "a"], ["3", "2", "1"], ["2", "2", "2", "2"]],
        [["a", "4"], ["3", "2", "1"]],
        [["a"], ["3", "2", "1", "1"]],
        [["4"], ["3", "2", "2", "2"]],
        [["9" * 19], ["-1", "99"]],
    ]
    limits = {"set-max-intset-entries": max_integers, "set-max-listpack-entries": max_entries}
    values = {}
    for index, commands in enumerate(sets):
        key = b"%d" % index
        values[key] = [
            [b"SADD", key, *(member.encode() for member in members)] for members in commands
        ]
    pair.check(values, limits)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("limit", [DISPUTED[0], pytest.param(DISPUTED[1], marks=pytest.mark.slow)])
def test_entries_that_versions_write_differently(pair: Pair, verb: bytes, limit: int) -> None:
    """For these sizes, a server refuses a listpack entry written by another version."""
    names = [b"hash", b"set", b"zset"]
    limits = {f"{name.decode()}-max-listpack-value": limit + 9 for name in names}
    values = {}
    for size in range(limit - 2, limit + 3):
        for others in ([], [b"y", b"1"]):
            key = b"%d %d" % (size, len(others))
            items = [b"x" * size, *others]
            if verb == b"HSET":
                items = [each for item in items for each in (item, item[:-1])]
            elif verb == b"ZADD":
                items = [each for item in items for each in (b"1.5", item)]
            values[key] = [[verb, key, *items]]
    for node in (-5, -2, 2):
        pair.check(values, limits | {"list-max-listpack-size": node})


def test_scores_of_minus_zero(pair: Pair) -> None:
    """The sign may differ: a server drops it in a listpack, and does not set it on a zero."""
    values: dict[bytes, list[Command]] = {}
    for size in (1, 200):
        members = [word for i in range(size) for word in (b"-0", b"%d" % i)]
        for index, scores in enumerate(([], [b"0"], [b"-0.0"], [b"0", b"-0"], [b"-0", b"0"])):
            key = b"%d %d" % (size, index)
            values[key] = [[b"ZADD", key, *members], *([b"ZADD", key, s, b"a"] for s in scores)]
    pair.native.flushall()
    commands = [command for each in values.values() for command in each]
    fastresp.mass_insert(commands, server=pair.urls[0], transport="socket")
    payloads = restores(commands, pair.configure({}))
    fastresp.mass_insert(payloads, server=pair.urls[1], transport="socket")
    for key in values:
        native, restored = (
            client.zrange(key, 0, -1, withscores=True) for client in (pair.native, pair.restored)
        )
        assert native == restored and native
        assert {score for _, score in native} == {0}
        assert pair.native.object("encoding", key) == pair.restored.object("encoding", key)


def test_any_key(pair: Pair) -> None:
    keys = [b"", b"\0", b"\r\n", b"$3\r\nDEL\r\n", b"\xff" * 100, b"k" * 70_000, b"12", b"-1"]
    pair.check({key: [[b"HSET", key, b"f", key]] for key in keys}, {})


@pytest.mark.few(5)
@pytest.mark.parametrize("sizes", [(128, 129), (512, 513), (1, 600)])
@pytest.mark.parametrize("verb", VERBS)
def test_limits_are_crossed(pair: Pair, verb: bytes, sizes: tuple[int, int]) -> None:
    """Limits are crossed by one command, by many commands, and by repeated items."""
    values = {}
    for size in sizes:
        items = [b"%d" % (i * i * i) for i in range(size)]
        texts = [b"t%d" % i for i in range(size)]
        for index, made in enumerate((items, texts, items + items, items[:-1] + texts[:1])):
            if verb == b"HSET":
                made = [word for item in made for word in (item, b"v")]
            elif verb == b"ZADD":
                made = [word for item in made for word in (b"1", item)]
            step = 2 if verb in (b"HSET", b"ZADD") else 1
            for each in (len(made), len(made) // 2 + 1, step):
                each += each % step
                key = b"%d %d %d" % (size, index, each)
                values[key] = [
                    [verb, key, *made[at : at + each]] for at in range(0, len(made), each)
                ]
    pair.check(values, {})
