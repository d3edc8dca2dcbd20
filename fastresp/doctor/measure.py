"""What is measured on a server: some thousand commands on keys of the doctor's own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ..encode.row_writer import Writer
from ..encode.template import Template
from ..load.mass_insert import mass_insert
from ..outcome.errors import CommandError, FastrespError
from ..resp.values import pack
from ..server.forks import is_own, own
from ..server.settings import Server, ServerLike
from ..transports.signals import Undisturbed
from .facts import SCRATCH, Facts, unix_server
from .link import (
    PING,
    BoundedSocket,
    Link,
    rate_of,
)
from .may_write import SMALL_BYTES, WRITES, WRITING_S, is_full, no_writing

__all__ = ["DEPTHS", "PIPELINE", "PLAN", "UNIX_DEPTH", "Measured", "Announce", "measure"]

Announce: TypeAlias = Callable[[str], None]
T = TypeVar("T")

KEYS = 100
VALUE = "x" * 100
EXPIRY_S = 60
STEP_S = 0.2
STEP_COMMANDS = 5_000
# Writes go to replicas and the append-only file as well, and count toward a server's next save.
STEP_WRITES = 600
REMOVALS = 10
REMOVAL_PAUSE_S = 0.02
LOAD_COMMANDS = 3_000
PIPELINE = 1_000
LIST_ITEMS = 1_000
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
DEPTHS_WHEN_FULL = (1, 2, 5, 10)
UNIX_DEPTH = 100
RECONNECTIONS = 50
TIMEOUT_S = 5.0
SLOTS_TRIED = 64
# What a node of a cluster says of a key in a slot that it does not have.
OTHER_SLOT = frozenset(("MOVED", "ASK", "CLUSTERDOWN"))
ROWS = 20_000

PLAN = f"""\
The doctor takes 1 to 5 seconds, and about 60 connections, two at once at most.
They begin as those of redis-py: HELLO, AUTH, SELECT, CLIENT SETINFO and CLIENT
MAINT_NOTIFICATIONS, as your server and your settings want it.
It asks ECHO, INFO, CONFIG GET, SLOWLOG GET, LATENCY LATEST, LATENCY HISTORY,
COMMAND DOCS or COMMAND INFO, and times PING, one and up to 1,000 at once.
It writes up to {WRITES:,} times, which replicas and the append-only file get, too:
SET of 100 bytes on 100 keys, and one list, by MULTI, RPUSH, EXPIRE and EXEC,
which LRANGE reads. They are under {SCRATCH}<random>:, expire after
a minute, and DEL removes them at the end. That is 5 MB on the wire, and less
than 1 MB of memory. No setting is changed, and none of your keys. One SET is
queued and thrown away by DISCARD, to see whether the server takes it.
They count toward the server's next save (BGSAVE). Where they would start it
within {WRITING_S:.0f} s, by its `save` points, and it has more than
{SMALL_BYTES >> 20} MiB to save, nothing is written; where the server does not tell these
points they may start one."""


@dataclass
class Measured:
    """What was measured; rates are commands a second, and None where nothing was.

    Attributes:
        full: whether the server is so near its maxmemory that even a reply could push out data.
        command: what was sent but for the depths: ``"SET"``, or ``"PING"`` where nothing may be
            written.
        reading_only: why nothing was written; empty where it was.
        refused: what could not be measured, and the server's words.
        round_trip_ms, round_trip_p99_ms: of a PING.
        depths: PINGs, ready bytes, by how many are in flight.
        ready: commands one at a time, ready bytes, by a loop in Python: what ``redis-benchmark
            -c 1`` measures in C.
        redis_py: by redis-py, one at a time over one connection.
        reconnecting: by redis-py, a connection for each.
        pipeline: by redis-py, PIPELINE commands a pipeline.
        encoder_ns: that a command takes to be encoded on this machine.
        read_items: items a second that redis-py reads of a list.
        load: of ``mass_insert()``.
        unix, unix_deep: as ``depths``, over the server's unix socket, one and UNIX_DEPTH in flight.
        split_ms: a PING written in two parts, where TCP_NODELAY is off.
        leftover: why the keys could not be removed; empty where they were.
    """

    full: bool = False
    command: str = "PING"
    reading_only: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    round_trip_ms: float | None = None
    round_trip_p99_ms: float | None = None
    depths: dict[int, float] = field(default_factory=dict)
    ready: float | None = None
    redis_py: float | None = None
    reconnecting: float | None = None
    pipeline: float | None = None
    encoder_ns: float = 0.0
    read_items: float | None = None
    load: float | None = None
    unix: float | None = None
    unix_deep: float | None = None
    split_ms: float | None = None
    leftover: str = ""


def measure(like: ServerLike, server: Server, facts: Facts, announce: Announce) -> Measured:
    """Measure the way to a server, and the server; leave out what it refuses.

    Args:
        like: as the user gave it.
        announce: is told what goes on.

    Raises:
        TransportError: the server was lost.
    """
    measured = Measured(reading_only=no_writing(facts), full=is_full(facts))
    _encoder(measured)
    # Signals wait while a write is in flight: one that the server runs after the DEL would stay.
    undisturbed = Undisturbed()
    with _link(server) as link, undisturbed:
        scratch = Scratch(link)
        try:
            if not measured.reading_only:
                measured.reading_only = scratch.refusal()
            _traffic(like, server, facts, scratch, measured, announce, undisturbed)
        finally:
            with Undisturbed():  # the other one ends with an interruption
                measured.leftover = scratch.remove(server)
    return measured


class Scratch:
    """The doctor's own keys, and commands on them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.used = False
        own(self)
        self._choose()

    def _choose(self) -> None:
        # A hash tag: on a node of a cluster all of them are in one slot.
        self.prefix = f"{SCRATCH}{{{secrets.token_hex(6)}}}:"

    def refusal(self) -> str:
        """Why the server does not take a write; empty where it does."""
        self.used = True  # whatever becomes of it
        for _ in range(SLOTS_TRIED):
            try:
                self.link.call(pack(*self.set(0)), 1)
            except CommandError as error:
                words = str(error)
                if error.code not in OTHER_SLOT:
                    break
                self._choose()
            else:
                return ""
        return f"the server refuses SET on {SCRATCH}*: {words}"

    def set(self, number: int) -> tuple[str, ...]:
        return ("SET", self.key(number), VALUE, "EX", str(EXPIRY_S))

    def key(self, number: int) -> str:
        return f"{self.prefix}{number}"

    @property
    def list_key(self) -> str:
        return f"{self.prefix}list"

    def fill_list(self, connection: Any) -> None:
        """Make the list and its expiry in one step: whoever is killed leaves nothing for long."""
        for command in (
            ("MULTI",),
            ("RPUSH", self.list_key, *[VALUE] * LIST_ITEMS),
            ("EXPIRE", self.list_key, EXPIRY_S),
            ("EXEC",),
        ):
            connection.send_command(*command)
            connection.read_response()

    def remove(self, server: Server) -> str:
        """Delete all keys, over a connection that nothing is in flight on; say why if it fails."""
        import redis

        if not (self.used and is_own(self)):
            return ""
        keys = [self.key(i) for i in range(KEYS)]
        try:
            with _link(server) as link:
                # What was on its way over an interrupted connection may come after the first DEL.
                for _ in range(REMOVALS):
                    link.connection.send_command("DEL", self.list_key, *keys)
                    if not link.connection.read_response():
                        break
                    time.sleep(REMOVAL_PAUSE_S)
        except (redis.RedisError, OSError) as error:  # a TransportError is one
            return f"the keys under {self.prefix} go within {EXPIRY_S} s by themselves: {error}"
        return ""


def _traffic(
    like: ServerLike,
    server: Server,
    facts: Facts,
    scratch: Scratch,
    measured: Measured,
    announce: Announce,
    undisturbed: Undisturbed,
) -> None:
    """Everything that sends commands, one measurement after another."""
    link, full = scratch.link, measured.full
    writing = not measured.reading_only
    command: tuple[str, ...] = scratch.set(0) if writing else ("PING",)
    name, data = command[0], pack(*command)
    most = STEP_WRITES if writing else STEP_COMMANDS
    measured.command = name

    def allowed(what: str, step: Callable[[], T]) -> T | None:
        with undisturbed.lifted:  # what came during the last measurement is raised here
            announce(what)
        return _allowed(server, measured, what, step)

    with undisturbed.lifted:
        allowed("round trips", lambda: _round_trips(facts, link, measured))
        allowed("PINGs in flight", lambda: _depths(server, facts, link, measured))
    measured.ready = allowed(
        f"{name} by a bare loop", lambda: _repeated(lambda: link.call(data, 1), 1, most)
    )
    with _client(server) as client:
        measured.redis_py = allowed(
            f"{name} by redis-py",
            lambda: _repeated(lambda: client.execute_command(*command), 1, most),
        )
        if not full:
            measured.pipeline = allowed(
                "pipelines of redis-py",
                lambda: _repeated(lambda: _pipeline(client, command), PIPELINE, most),
            )
    if not full:
        measured.reconnecting = allowed(
            "a connection for each",
            lambda: _repeated(lambda: _reconnect(server, command), 1, RECONNECTIONS),
        )
    if writing:
        measured.read_items = allowed(
            "a list read by redis-py", lambda: _read_list(server, scratch)
        )
        measured.load = allowed("mass_insert()", lambda: _load(like, scratch))


def _allowed(server: Server, measured: Measured, what: str, step: Callable[[], T]) -> T | None:
    """Measure one thing; where the server refuses it, keep what it says.

    Raises:
        TransportError: the server was lost.
    """
    import redis

    try:
        return step()
    except (CommandError, redis.ResponseError) as error:
        measured.refused[what] = error.text if isinstance(error, CommandError) else str(error)
        return None
    except (redis.RedisError, OSError) as error:
        if isinstance(error, FastrespError):
            raise
        raise server.failure(error) from error


def _round_trips(facts: Facts, link: Link, measured: Measured) -> None:
    times = link.round_trips(seconds=STEP_S, most=2_000)
    measured.round_trip_ms = times[len(times) // 2] * 1000
    measured.round_trip_p99_ms = times[int(len(times) * 0.99)] * 1000
    if facts.nodelay is False:
        measured.split_ms = link.split_round_trip(5) * 1000


def _depths(server: Server, facts: Facts, link: Link, measured: Measured) -> None:
    for depth in DEPTHS_WHEN_FULL if measured.full else DEPTHS:
        measured.depths[depth] = _pings(link, depth)
    if facts.unix_socket and facts.way != "unix":
        _unix(server, facts, link, measured)


def _pings(link: Link, depth: int) -> float:
    data = PING * depth
    return _repeated(lambda: link.call(data, depth), depth, STEP_COMMANDS)


def _unix(server: Server, facts: Facts, link: Link, measured: Measured) -> None:
    """PINGs over the server's unix socket, in turn with TCP: what else runs changes."""
    with suppress(FastrespError), _link(unix_server(server, facts.unix_socket)) as other:
        for depth in (1,) if measured.full else (1, UNIX_DEPTH):
            rate = _pings(other, depth)
            measured.depths[depth] = max(measured.depths[depth], _pings(link, depth))
            measured.unix = rate if depth == 1 else measured.unix
            measured.unix_deep = rate if depth > 1 else None


def _pipeline(client: Any, command: tuple[str, ...]) -> None:
    with client.pipeline(transaction=False) as lines:
        for _ in range(PIPELINE):
            lines.execute_command(*command)
        lines.execute()


def _reconnect(server: Server, command: tuple[str, ...]) -> None:
    connection = server.connect(TIMEOUT_S)
    try:
        connection.send_command(*command)
        connection.read_response()
    finally:
        connection.disconnect()


def _read_list(server: Server, scratch: Scratch) -> float:
    """How many items of a list redis-py reads a second."""
    with _link(server) as link, _client(server) as client:
        scratch.fill_list(link.connection)
        lines = ("LRANGE", scratch.list_key, 0, -1)
        # As redis-py reads it: our own connections have another parser.
        return _repeated(lambda: client.execute_command(*lines), LIST_ITEMS, 20_000)


def _load(like: ServerLike, scratch: Scratch) -> float:
    """The rate of a short ``mass_insert()``.

    Raises:
        CommandError: the server refuses a command of it.
    """
    rows = ((scratch.key(i % KEYS), VALUE) for i in range(LOAD_COMMANDS))
    template = f"SET {{0}} {{1}} EX {EXPIRY_S}"
    try:
        report = mass_insert(
            rows, template, server=like, transport="socket", on_error="collect", timeout=TIMEOUT_S
        )
    except BaseException as error:
        vars(error).pop("report", None)  # it is no load of the user's
        raise
    if report.errors:
        raise report.errors[0]
    return report.commands_per_second


def _repeated(step: Callable[[], object], count: int, most: int) -> float:
    return rate_of(step, count, seconds=STEP_S, most=most)


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
def _client(server: Server) -> Iterator[Any]:
    """redis-py over one connection, with the user's own settings, and bounded."""
    import redis

    connected = server.settings.get("redis_connect_func")

    def bound(connection: Any) -> None:
        # Before redis-py's parser takes the socket.
        connection._sock = BoundedSocket(connection._sock)
        if connected is None:
            connection.on_connect()
        else:
            connected(connection)

    settings = server.settings | {"redis_connect_func": bound, "socket_timeout": TIMEOUT_S}
    pool = redis.ConnectionPool(
        connection_class=server.connection_class, max_connections=1, **settings
    )
    try:
        with redis.Redis(connection_pool=pool) as client:
            yield client
    finally:
        pool.disconnect()


@contextmanager
def _link(server: Server) -> Iterator[Link]:
    connection = server.connect(TIMEOUT_S)
    try:
        yield Link(server, connection)
    finally:
        connection.disconnect()
