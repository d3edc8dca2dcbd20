"""Fuzz the writer of finished values against a real server. README.md here says how to run it.

The first byte of an input sets the server's limits, the second the size of a chunk. Items follow;
the first byte of each is its kind. All items become a hash, a list from either end, a set and a
sorted set: with RESTORE, and with the commands themselves.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any

import atheris
import redis

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from random_values import Command, limits, restores

from fastresp.encode.payload.format import DEFAULTS, Format
from fastresp.server.local_server import LocalServer

# The first byte of an item: up to this value, a text of 0 to 63 bytes follows.
TEXT, INTEGER, REPEATED, LARGE = 0xBF, 0xCF, 0xDF, 0xEF
# Larger items repeat a few bytes.
MAX_BYTES = 1 << 16
SAVE_EVERY = 1_000
LIMITS = [DEFAULTS, *(DEFAULTS | limits(Random(seed)) for seed in range(15))]
READS = {
    b"HSET": ("HGETALL",),
    b"SADD": ("SMEMBERS",),
    b"ZADD": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"RPUSH": ("LRANGE", 0, -1),
    b"LPUSH": ("LRANGE", 0, -1),
}
PREFIXES = b"native:", b"ours:"
NUMBERS = b"\xc0\x7f\xc0\x80\xc1\x0f\xff\xc1\xf0\x00\xc3\x7f\xff\xff\xff\xc7\x80\0\0\0\0\0\0\0"
SEEDS = [
    b"\0\0\1a\1b\1a\2cd\xf0\1a\0",
    b"\0\xff" + NUMBERS + b"\xf0" + NUMBERS,
    b"\1\x10" + b"".join(b"\xc1" + bytes(divmod(i, 256)) for i in range(600)),
    b"\2\0" + b"\xd0\0" * 200 + b"\3xyz\xd0\1\x3f" + b"z" * 63,
    b"\3\1\xe0\x40\0a\xe0\x3f\xf9b\xe0\x0f\xffc\xe0\x10\0d\xe0\x1f\xf8e",
    b"\4\2\xe0\xff\xffa\xe1\xff\xffb\1c",
]


def items_of(data: bytes) -> list[list[bytes]]:
    """Return the items of an input, for each command."""
    commands: list[list[bytes]] = [[]]
    seen, size, at = [b"", b"0"], 0, 0
    while at < len(data) and size < MAX_BYTES:
        kind, rest = data[at], data[at + 1 : at + 64]
        if kind <= TEXT:
            item, used = rest[: kind & 63], kind & 63
        elif kind <= INTEGER:
            used = (kind & 7) + 1
            item = b"%d" % int.from_bytes(rest[:used], "big", signed=True)
        elif kind <= REPEATED:
            item, used = seen[int.from_bytes(rest[:1], "big") % len(seen)], 1
        elif kind <= LARGE:
            item, used = rest[2:3] * int.from_bytes(rest[:2], "big"), 3
        else:
            commands.append([])
            at += 1
            continue
        commands[-1].append(item)
        seen.append(item)
        size += len(item)
        at += 1 + used
    return [items for items in commands if items]


def score(item: bytes) -> bytes:
    """Return a score made of an item: its bytes as a float, or an integer."""
    [number] = struct.unpack("<d", item[:8].ljust(8, b"\x40"))
    if 1e-99 < abs(number) < 1e99:
        return repr(number).encode()
    return b"%d" % int.from_bytes(item[:7], "big", signed=True)


def commands_of(verb: bytes, commands: list[list[bytes]]) -> list[Command]:
    made = []
    for items in commands:
        if verb == b"HSET":
            items = [each for pair in zip(items, items[::-1], strict=True) for each in pair]
        elif verb == b"ZADD":
            items = [each for item in items for each in (score(item[::-1]), item)]
        made.append([verb, b"native:" + verb, *items])
    return made


class Checker:
    """Compares the server's values made by commands with the restored values."""

    def __init__(self, server: LocalServer) -> None:
        self.client = redis.Redis.from_url(server.url)
        self.client.set("any", "x")
        self.rdb_version = int.from_bytes(self.client.dump("any")[-10:-8], "little")
        with suppress(redis.ResponseError):  # Valkey 9.1 always checks payloads
            self.client.config_set("sanitize-dump-payload", "yes")
        self.runs = self.values = 0
        self.limits: dict[str, int] = {}

    def check(self, data: bytes) -> None:
        """Check one input."""
        commands = items_of(data[2:])
        if not commands:
            return
        self.configure(LIMITS[data[0] % len(LIMITS)])
        native = [each for verb in READS for each in commands_of(verb, commands)]
        restored = restores(native, Format(self.rdb_version, self.limits), 16 << data[1] % 16)
        pipe = self.client.pipeline(transaction=False)
        pipe.delete(*(prefix + verb for prefix in PREFIXES for verb in READS))
        for command in native:
            pipe.execute_command(*command)
        for verb, words in zip(READS, restored, strict=True):
            pipe.execute_command(words[0], b"ours:" + verb, *words[2:])
        for verb, (name, *rest) in READS.items():
            for prefix in PREFIXES:
                pipe.execute_command("DEBUG", "DIGEST-VALUE", prefix + verb)
                pipe.execute_command(name, prefix + verb, *rest)
        found: list[Any] = pipe.execute()  # raises for an error reply
        for verb, at in zip(READS, range(len(found) - 4 * len(READS), len(found), 4), strict=True):
            if found[at : at + 2] != found[at + 2 : at + 4]:
                raise AssertionError(f"{self.limits}: {verb!r} of {commands} is different")
        self.values += len(READS)
        self.runs += 1
        if self.runs % SAVE_EVERY == 0:
            self.save()

    def configure(self, limits: dict[str, int]) -> None:
        """Set the limits of the server's encodings."""
        for name, number in limits.items():
            if self.limits.get(name) == number:
                continue
            if self.rdb_version > 10 or not name.startswith("set-max-listpack"):
                self.client.config_set(name, number)
        self.limits = limits

    def save(self) -> None:
        """Make the server write all data to its file, and read it again."""
        before = self.client.execute_command("DEBUG", "DIGEST")
        self.client.save()
        self.client.execute_command("DEBUG", "RELOAD", "NOSAVE")
        if self.client.execute_command("DEBUG", "DIGEST") != before:
            raise AssertionError("the data differ after SAVE and DEBUG RELOAD")
        print(f"{self.values:,} values are right", file=sys.stderr, flush=True)


def main() -> None:
    """Write the seeds to the directory in the first argument, then fuzz."""
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if corpus and not corpus.name.startswith("-") and not corpus.is_file():
        corpus.mkdir(exist_ok=True)
        for seed in SEEDS:
            (corpus / sha1(seed).hexdigest()).write_bytes(seed)
    os.environ.pop("LD_PRELOAD", None)  # the server is not instrumented
    with LocalServer("--enable-debug-command", "yes") as server:
        # The fuzzer exits without cleanup; this process then stops the server.
        fuzzer = os.fork()
        if not fuzzer:
            atheris.Setup(sys.argv, Checker(server).check)
            atheris.Fuzz()
        status = os.waitstatus_to_exitcode(os.waitpid(fuzzer, 0)[1])
    sys.exit(status)


if __name__ == "__main__":
    main()
