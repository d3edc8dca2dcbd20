"""What is measured on a server: some thousand commands on keys of the doctor's own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import CommandError, FastrespError
from ..load import mass_insert
from ..server import Server, ServerLike
from ..template import Template
from ..wire.encode import pack
from ..wire.writer import Writer
from .facts import SCRATCH, Facts, unix_server
from .link import PING, PONG, Link, rate_of

__all__ = ["DEPTHS", "PIPELINE", "PLAN", "UNIX_DEPTH", "Measured", "Show", "measure"]

Show: TypeAlias = Callable[[str], None]

KEYS = 1_000
VALUE = "x" * 100
EXPIRY_S = 60
STEP_S = 0.2
STEP_COMMANDS = 5_000
LOAD_COMMANDS = 30_000
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
DEPTHS_WHEN_FULL = (1, 2, 5, 10)
PIPELINE = 1_000
UNIX_DEPTH = 100
RECONNECTIONS = 50
LIST_ITEMS = 1_000
TIMEOUT_S = 5.0
SLOTS_TRIED = 64
# What a node of a cluster says of a key in a slot that it does not have.
OTHER_SLOT = frozenset(("MOVED", "ASK", "CLUSTERDOWN"))
OK = b"+OK\r\n"
ROWS = 20_000
# In a server that holds more nothing is written.
LARGE_BYTES = 4 << 30
# With less than this below maxmemory nothing is written: it could push out data, or be refused.
ROOM_BYTES = 8 << 20
ROOM_SHARE = 0.1

PLAN = (
    "For 2 to 5 seconds it sends PINGs, and SETs of 100 bytes on 1,000 keys and one list under "
    f"{SCRATCH}<random>:, which expire after a minute and are removed at the end: about 20 MB on "
    "the wire, 1 MB of memory, about 100,000 writes, which go to replicas and the AOF as well. It "
    "reads INFO, CONFIG, LATENCY, SLOWLOG and COMMAND, and changes no "
    "setting and none of your keys."
)


@dataclass
class Measured:
    """What was measured; rates are commands a second, and None where nothing was.

    Attributes:
        full: whether the server is so near its maxmemory that even a reply could push out data.
        command: what was sent: ``"SET"``, or ``"PING"`` where nothing may be written.
        reading_only: why nothing was written; empty where it was.
        round_trip_ms, round_trip_p99_ms: of a PING.
        ping: PINGs one at a time, ready bytes.
        ready: commands one at a time, ready bytes: the equivalent of ``redis-benchmark -c 1``.
        redis_py: by redis-py, one at a time over one connection.
        reconnecting: by redis-py, a connection for each.
        pipeline: by redis-py, PIPELINE commands a pipeline.
        depths: ready bytes, by how many commands are in flight.
        encoder_ns: that a command takes to be encoded on this machine.
        read_items: items a second that redis-py reads of a list.
        read_items_fast: the same, built by fastresp.
        load: of ``mass_insert()``.
        unix: as ``ready``, over the server's unix socket.
        unix_deep: the same with UNIX_DEPTH in flight.
        split_ms: a PING written in two parts, where TCP_NODELAY is off.
        leftover: why the keys could not be removed; empty where they were.
    """

    full: bool = False
    command: str = "SET"
    reading_only: str = ""
    round_trip_ms: float = 0.0
    round_trip_p99_ms: float = 0.0
    ping: float = 0.0
    ready: float = 0.0
    redis_py: float = 0.0
    reconnecting: float = 0.0
    pipeline: float = 0.0
    depths: dict[int, float] = field(default_factory=dict)
    encoder_ns: float = 0.0
    read_items: float | None = None
    read_items_fast: float | None = None
    load: float | None = None
    unix: float | None = None
    unix_deep: float | None = None
    split_ms: float | None = None
    leftover: str = ""


def measure(like: ServerLike, server: Server, facts: Facts, show: Show) -> Measured:
    """Measure the way to a server, and the server.

    Args:
        like: as the user gave it.
        show: is told what goes on.

    Raises:
        TransportError: the server was lost.
    """
    measured = Measured(reading_only=_no_writing(facts), full=_is_full(facts))
    with _link(server) as link:
        show("round trips")
        times = link.round_trips(seconds=STEP_S, most=2_000)
        measured.round_trip_ms = times[len(times) // 2] * 1000
        measured.round_trip_p99_ms = times[int(len(times) * 0.99)] * 1000
        measured.ping = _rate(link, PING, 1, PONG)
        if facts.nodelay is False:
            measured.split_ms = link.split_round_trip(5) * 1000
        _encoder(measured)
        scratch = Scratch(link)
        try:
            if not measured.reading_only:
                measured.reading_only = scratch.refusal()
            _traffic(like, server, facts, scratch, measured, show)
        except CommandError as error:
            raise FastrespError(f"{server} refuses a command of the doctor: {error}") from error
        finally:
            measured.leftover = scratch.remove(server)
    return measured


class Scratch:
    """The doctor's own keys, and commands on them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.used = False
        self._choose()

    def _choose(self) -> None:
        # A hash tag: on a node of a cluster all of them are in one slot.
        self.prefix = f"{SCRATCH}{{{secrets.token_hex(6)}}}:"

    def refusal(self) -> str:
        """Why the server does not take a write; empty where it does."""
        for _ in range(SLOTS_TRIED):
            try:
                self.link.call(self.sets(1), 1, len(OK))
            except CommandError as error:
                words = str(error)
                if error.code not in OTHER_SLOT:
                    break
                self._choose()
            else:
                self.used = True
                return ""
        return f"the server refuses SET on {SCRATCH}*: {words}"

    def sets(self, count: int) -> bytes:
        return b"".join(pack("SET", self.key(i), VALUE, "EX", EXPIRY_S) for i in range(count))

    def key(self, number: int) -> str:
        return f"{self.prefix}{number}"

    @property
    def list_key(self) -> str:
        return f"{self.prefix}list"

    def fill_list(self) -> None:
        """Make the list and its expiry in one step: whoever is killed leaves nothing for long."""
        push = pack("RPUSH", self.list_key, *[VALUE] * LIST_ITEMS)
        commands = [("MULTI",), ("EXPIRE", self.list_key, EXPIRY_S), ("EXEC",)]
        multi, expire, execute = (pack(*command) for command in commands)
        self.link.socket.sendall(multi + push + expire + execute)
        for _ in range(4):
            self.link.connection.read_response()

    def remove(self, server: Server) -> str:
        """Delete all keys, over a connection that nothing is in flight on; say why if it fails."""
        if not self.used:
            return ""
        keys = [self.key(i) for i in range(KEYS)]
        try:
            with _link(server) as link:
                link.reply(["DEL", self.list_key, *keys])
        except FastrespError as error:
            return f"the keys under {self.prefix} go within {EXPIRY_S} s by themselves: {error}"
        return ""


def _no_writing(facts: Facts) -> str:
    """Why nothing should be written, from what is known before; empty where nothing speaks."""
    if facts.replica:
        return "it is a replica"
    if _is_full(facts):
        return "its memory is nearly full"
    if facts.number("rdb_bgsave_in_progress") or facts.number("aof_rewrite_in_progress"):
        return "it is writing its data to disk just now"
    if (facts.number("used_memory") or 0) > LARGE_BYTES:
        # Ten thousand changes make a server save by default: a fork, and twice the memory.
        return f"it holds more than {LARGE_BYTES >> 30} GiB: so many writes could make it save all"
    return ""


def _is_full(facts: Facts) -> bool:
    """Whether a write could be refused or push out data, as buffers of a connection can, too."""
    left, most = facts.memory_left, facts.number("maxmemory")
    return left is not None and most is not None and left < max(ROOM_BYTES, most * ROOM_SHARE)


def _traffic(
    like: ServerLike, server: Server, facts: Facts, scratch: Scratch, measured: Measured, show: Show
) -> None:
    """Everything that sends many commands."""
    link = scratch.link
    writing = not measured.reading_only
    measured.command = "SET" if writing else "PING"
    status = OK if writing else PONG

    def batch(count: int) -> bytes:
        return scratch.sets(count) if writing else PING * count

    show(f"{measured.command}, one at a time, and more and more at once")
    for depth in DEPTHS_WHEN_FULL if measured.full else DEPTHS:
        measured.depths[depth] = _rate(link, batch(depth), depth, status)
    measured.ready = measured.depths[1]
    if facts.unix_socket and facts.way != "unix":
        _unix(server, facts, link, measured, batch, status)
    show("redis-py")
    _redis_py(server, scratch, measured)
    if writing:
        show("mass_insert()")
        measured.load = _load(like, scratch)


def _load(like: ServerLike, scratch: Scratch) -> float:
    """The rate of a short ``mass_insert()``."""
    rows = ((scratch.key(i % KEYS), VALUE) for i in range(LOAD_COMMANDS))
    template = f"SET {{0}} {{1}} EX {EXPIRY_S}"
    try:
        report = mass_insert(
            rows, template, server=like, transport="socket", on_error="collect", timeout=TIMEOUT_S
        )
    except BaseException as error:
        vars(error).pop("report", None)  # it is no load of the user's
        raise
    return report.commands_per_second


def _rate(link: Link, commands: bytes, count: int, status: bytes) -> float:
    return _repeated(lambda: link.call(commands, count, len(status)), count, STEP_COMMANDS)


def _redis_py(server: Server, scratch: Scratch, measured: Measured) -> None:
    """redis-py with the user's own settings: as a client, in pipelines, and connecting anew."""
    import redis

    command: tuple[Any, ...] = ("PING",)
    if measured.command == "SET":
        command = ("SET", scratch.key(0), VALUE, "EX", EXPIRY_S)
    pool = redis.ConnectionPool(
        connection_class=server.connection_class, max_connections=1, **server.settings
    )
    try:
        with redis.Redis(connection_pool=pool) as client:
            client.execute_command(*command)  # connects
            measured.redis_py = _repeated(lambda: client.execute_command(*command), 1, 2_000)

            def pipeline() -> None:
                with client.pipeline(transaction=False) as lines:
                    for _ in range(PIPELINE):
                        lines.execute_command(*command)
                    lines.execute()

            if not measured.full:
                measured.pipeline = _repeated(pipeline, PIPELINE, 10_000)
        if measured.command == "SET":
            _read_list(server, scratch, measured)
    except (redis.RedisError, OSError) as error:
        if isinstance(error, FastrespError):
            raise
        raise server.failure(error) from error
    finally:
        pool.disconnect()

    def reconnect() -> None:
        connection = server.connect(TIMEOUT_S)
        try:
            connection.send_command(*command)
            connection.read_response()
        finally:
            connection.disconnect()

    if measured.full:
        return
    measured.reconnecting = _repeated(reconnect, 1, RECONNECTIONS)


def _read_list(server: Server, scratch: Scratch, measured: Measured) -> None:
    """How fast redis-py reads a list, and how fast it can be read."""
    scratch.fill_list()
    command = ["LRANGE", scratch.list_key, "0", "-1"]
    connection = scratch.link.connection

    def by_redis_py() -> None:
        connection.send_command(*command)
        connection.read_response()

    measured.read_items = _repeated(by_redis_py, LIST_ITEMS, 20_000)
    measured.read_items_fast = _repeated(
        lambda: scratch.link.reply(command), LIST_ITEMS, 20_000
    )  # fmt: skip


def _repeated(step: Callable[[], object], count: int, most: int) -> float:
    return rate_of(step, count, seconds=STEP_S, most=most)


def _unix(
    server: Server,
    facts: Facts,
    link: Link,
    measured: Measured,
    batch: Callable[[int], bytes],
    status: bytes,
) -> None:
    """The same over the server's unix socket, in turn with TCP: what else runs changes."""
    with suppress(FastrespError), _link(unix_server(server, facts.unix_socket)) as other:
        for depth in (1,) if measured.full else (1, UNIX_DEPTH):
            rate = _rate(other, batch(depth), depth, status)
            again = _rate(link, batch(depth), depth, status)
            measured.depths[depth] = max(measured.depths[depth], again)
            measured.unix = rate if depth == 1 else measured.unix
            measured.unix_deep = rate if depth > 1 else None
    measured.ready = measured.depths[1]


def _encoder(measured: Measured) -> None:
    """The best of three: what disturbs it is not the encoder's."""
    rows = [(f"key:{i}", VALUE) for i in range(ROWS)]
    taken = []
    for _ in range(3):
        writer = Writer(Template("SET {0} {1}"))
        begin = time.perf_counter()
        for chunk in writer.chunks(rows):
            len(chunk.ends)
        taken.append(time.perf_counter() - begin)
    measured.encoder_ns = min(taken) / ROWS * 1e9


@contextmanager
def _link(server: Server) -> Iterator[Link]:
    connection = server.connect(TIMEOUT_S)
    try:
        yield Link(server, connection)
    finally:
        connection.disconnect()
