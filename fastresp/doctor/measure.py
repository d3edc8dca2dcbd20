"""Measure a server with a few thousand commands on the doctor's own keys."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import redis

from ..encode.template import Template
from ..encode.writer import Writer
from ..load.mass_insert import mass_insert
from ..outcome.errors import CommandError, FastrespError
from ..resp.slots import Rules
from ..resp.values import pack
from ..server.forks import is_own, on_fork
from ..server.settings import Server
from ..transports.signals import Undisturbed
from .connections import PING, BoundedSocket, RawConnection, rate_of, unix_server
from .facts import KEY_PREFIX, SMALL_BYTES, WRITES, WRITING_S, Facts, is_full, no_writing

__all__ = ["DEPTHS", "PIPELINE", "PLAN", "UNIX_DEPTH", "Measured", "Announce", "measure"]

Announce: TypeAlias = Callable[[str], object]
T = TypeVar("T")

KEYS = 100
VALUE = "x" * 100
EXPIRY_S = 60
STEP_COMMANDS = 5_000
# Writes are fewer, since they reach replicas and the append-only file, and may trigger a save.
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
# Error codes of a cluster node that does not serve the slot of a key.
OTHER_SLOT = frozenset(("MOVED", "ASK", "CLUSTERDOWN"))
ROWS = 20_000

PLAN = f"""\
The doctor takes 1 to 5 seconds and opens about 60 connections, at most two at
a time. Each starts like a connection of redis-py, depending on your server and
settings: HELLO, AUTH, SELECT, CLIENT SETINFO and CLIENT MAINT_NOTIFICATIONS.
It sends INFO, CONFIG GET, SLOWLOG GET, LATENCY LATEST, LATENCY HISTORY
and COMMAND DOCS or COMMAND INFO, and times PING, with 1 to 1,000 in flight.
It makes up to {WRITES:,} writes, which also go to replicas and the append-only
file: SET of 100 bytes on 100 keys, and one list (MULTI, RPUSH, EXPIRE, EXEC),
which it reads with LRANGE. The keys start with {KEY_PREFIX}<random>:,
expire after a minute, and are removed with DEL at the end. In all, that is 5 MB
on the wire and less than 1 MB of memory. Your settings and keys are not
changed.
The writes count toward the server's next save (BGSAVE). If they would trigger
it within {WRITING_S:.0f} s, by its `save` points, and the server holds more than
{SMALL_BYTES >> 20} MiB, the doctor writes nothing. If the server refuses to report its save
points, the writes may trigger a save."""


@dataclass
class Measured:
    """The measurements. Rates are in commands per second. A value is None if not measured.

    Attributes:
        full: whether memory is so close to maxmemory that even a reply could evict keys.
        command: the command of all measurements except ``depths``: ``"SET"``, or ``"PING"`` if the
            doctor writes nothing.
        reading_only: why nothing was written; empty if writes were measured.
        refused: the error replies of the server, by the name of the refused measurement.
        round_trip_ms: median round trip of a PING, in milliseconds.
        round_trip_p99_ms: 99th percentile of the round trips, in milliseconds.
        depths: the rates of encoded PINGs, by the number of PINGs in flight.
        ready: the rate of encoded commands that are sent one at a time, in a Python loop;
            ``redis-benchmark -c 1`` measures the same in C.
        redis_py: the rate of redis-py, one command at a time over one connection.
        reconnecting: the rate of redis-py with a new connection for each command.
        pipeline: the rate of redis-py in pipelines of PIPELINE commands.
        encoder_ns: nanoseconds to encode a command on this machine.
        read_items: how many list items per second redis-py reads.
        load: the rate of ``mass_insert()``.
        unix: the rate of PINGs over the server's unix socket, with one PING in flight.
        unix_deep: as ``unix``, with UNIX_DEPTH PINGs in flight.
        split_ms: milliseconds for a PING that is written in two parts; None if TCP_NODELAY is on.
        leftover: why the doctor's keys could not be removed; empty if they were removed.
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


def measure(
    server: Server, facts: Facts, announce: Announce, slots: Collection[int] = ()
) -> Measured:
    """Measure a server and its connection; skip measurements that the server refuses.

    Args:
        facts: the server's settings and state.
        announce: called with the name of each step as it starts.
        slots: the slots of a cluster node, for the doctor's keys; empty for a single server, or if
            unknown.
    """
    measured = Measured(reading_only=no_writing(facts), full=is_full(facts))
    _encoder(measured)
    # Delay signals while a write is in flight. If a SET ran after the DEL, its key would remain.
    undisturbed = Undisturbed()
    with _link(server) as link, undisturbed:
        scratch = ScratchKeys(link, slots)
        try:
            if not measured.reading_only:
                measured.reading_only = scratch.refusal()
            _traffic(server, facts, scratch, measured, announce, undisturbed)
        finally:
            with Undisturbed():  # because an interruption has ended ``undisturbed``
                measured.leftover = scratch.remove(server)
    return measured


class ScratchKeys:
    """The doctor's own keys, and the commands on them."""

    def __init__(self, link: RawConnection, slots: Collection[int]) -> None:
        self.link = link
        self.used = False
        self._slots = frozenset(slots)
        on_fork(self)
        self._choose()

    def _choose(self) -> None:
        # A hash tag puts all keys into one slot of a cluster.
        rules = Rules()
        while True:
            self.prefix = f"{KEY_PREFIX}{{{secrets.token_hex(6)}}}:"
            if not self._slots or rules.slot(pack("GET", self.prefix)) in self._slots:
                break

    def refusal(self) -> str:
        """Try a write; return why the server refuses it, or an empty string."""
        self.used = True  # even if this fails, the SET may have run
        for _ in range(SLOTS_TRIED):
            try:
                self.link.call(pack(*self.set(0)), 1)
            except CommandError as error:
                refusal = str(error)
                if error.code not in OTHER_SLOT:
                    break
                self._choose()
            else:
                return ""
        return f"the server refuses SET on {KEY_PREFIX}*: {refusal}"

    def set(self, number: int) -> tuple[str, ...]:
        return ("SET", self.key(number), VALUE, "EX", str(EXPIRY_S))

    def key(self, number: int) -> str:
        return f"{self.prefix}{number}"

    @property
    def list_key(self) -> str:
        return f"{self.prefix}list"

    def fill_list(self, link: RawConnection) -> None:
        """Create the list and its expiry in one transaction, so that it can't remain forever."""
        for command in (
            ("MULTI",),
            ("RPUSH", self.list_key, *[VALUE] * LIST_ITEMS),
            ("EXPIRE", self.list_key, EXPIRY_S),
            ("EXEC",),
        ):
            link.ask(*command)

    def remove(self, server: Server) -> str:
        """Delete all keys over a new connection; return an error message, or an empty string."""
        if not (self.used and is_own(self)):
            return ""
        keys = [self.key(i) for i in range(KEYS)]
        try:
            with _link(server) as link:
                # Commands in flight on an interrupted connection may run after the first DEL.
                for _ in range(REMOVALS):
                    if not link.ask("DEL", self.list_key, *keys):
                        break
                    time.sleep(REMOVAL_PAUSE_S)
        except (redis.RedisError, OSError) as error:  # includes TransportError
            return f"the keys under {self.prefix} expire by themselves in {EXPIRY_S} s: {error}"
        return ""


@contextmanager
def _lifted(undisturbed: Undisturbed) -> Iterator[None]:
    """Deliver signals immediately in the block; delay them again unless the block raises."""
    holding = undisturbed.holding
    undisturbed.__exit__()
    yield
    if holding:
        undisturbed.__enter__()


def _traffic(
    server: Server,
    facts: Facts,
    scratch: ScratchKeys,
    measured: Measured,
    announce: Announce,
    undisturbed: Undisturbed,
) -> None:
    """Run all measurements that send commands, one by one."""
    link, full = scratch.link, measured.full
    writing = not measured.reading_only
    command: tuple[str, ...] = scratch.set(0) if writing else ("PING",)
    name, data = command[0], pack(*command)
    most = STEP_WRITES if writing else STEP_COMMANDS
    measured.command = name

    def allowed(what: str, step: Callable[[], T]) -> T | None:
        """Run one measurement; if the server refuses a command, note the error."""
        with _lifted(undisturbed):  # raises a signal that arrived during the last measurement
            announce(what)
        try:
            return step()
        except CommandError as error:
            measured.refused[what] = error.text
        except redis.ResponseError as error:
            measured.refused[what] = str(error)
        except FastrespError:
            raise
        except (redis.RedisError, OSError) as error:
            raise server.failure(error) from error
        return None

    def rate(
        what: str, step: Callable[[], object], count: int = 1, limit: int = most
    ) -> float | None:
        return allowed(what, lambda: rate_of(step, count, limit))

    with _lifted(undisturbed):
        allowed("round trips", lambda: _round_trips(facts, link, measured))
        allowed("PINGs in flight", lambda: _depths(server, facts, link, measured))
    measured.ready = rate(f"{name} over a bare socket", lambda: link.call(data, 1))
    with _client(server) as client:
        measured.redis_py = rate(f"{name} by redis-py", lambda: client.execute_command(*command))
        if not full:
            measured.pipeline = rate(
                "pipelines of redis-py", lambda: _pipeline(client, command), PIPELINE
            )
    if not full:
        measured.reconnecting = rate(
            "a new connection each", lambda: _reconnect(server, command), limit=RECONNECTIONS
        )
    if writing:
        measured.read_items = allowed(
            "a list read by redis-py", lambda: _read_list(server, scratch)
        )
        measured.load = allowed("mass_insert()", lambda: _load(server, scratch))


def _round_trips(facts: Facts, link: RawConnection, measured: Measured) -> None:
    times = link.round_trips()
    measured.round_trip_ms = times[len(times) // 2] * 1000
    measured.round_trip_p99_ms = times[int(len(times) * 0.99)] * 1000
    if facts.nodelay is False:
        measured.split_ms = link.split_round_trip(5) * 1000


def _depths(server: Server, facts: Facts, link: RawConnection, measured: Measured) -> None:
    for depth in DEPTHS_WHEN_FULL if measured.full else DEPTHS:
        measured.depths[depth] = _pings(link, depth)
    if facts.unix_socket and facts.way != "unix":
        _unix(server, facts, link, measured)


def _pings(link: RawConnection, depth: int) -> float:
    data = PING * depth
    return rate_of(lambda: link.call(data, depth), depth, STEP_COMMANDS)


def _unix(server: Server, facts: Facts, link: RawConnection, measured: Measured) -> None:
    """Measure PINGs over the unix socket and TCP in turn, so that both see the same load."""
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
    with _link(server) as link:
        link.ask(*command)


def _read_list(server: Server, scratch: ScratchKeys) -> float:
    """Return how many list items per second redis-py reads."""
    with _link(server) as link, _client(server) as client:
        scratch.fill_list(link)
        lines = ("LRANGE", scratch.list_key, 0, -1)
        # Use redis-py's own client, since our connections do not have redis-py's parser.
        return rate_of(lambda: client.execute_command(*lines), LIST_ITEMS, 20_000)


def _load(server: Any, scratch: ScratchKeys) -> float:
    """Run a short ``mass_insert()``, and return commands per second."""
    rows = ((scratch.key(i % KEYS), VALUE) for i in range(LOAD_COMMANDS))
    template = f"SET {{0}} {{1}} EX {EXPIRY_S}"
    try:
        report = mass_insert(
            rows, template, server=server, transport="socket", on_error="collect", timeout=TIMEOUT_S
        )
    except BaseException as error:
        vars(error).pop("report", None)  # this is not the user's load
        raise
    if report.errors:
        raise report.errors[0]
    return report.commands_per_second


def _encoder(measured: Measured) -> None:
    rows = [(f"key:{i}", VALUE) for i in range(ROWS)]
    writer = Writer(Template("SET {0} {1}"))

    def encode() -> None:
        for chunk in writer.chunks(rows):
            len(chunk.ends)

    measured.encoder_ns = 1e9 / rate_of(encode, ROWS, ROWS)


@contextmanager
def _client(server: Server) -> Iterator[Any]:
    """Yield a redis-py client with the user's settings, over one bounded connection."""
    connected = server.settings.get("redis_connect_func")

    def bound(connection: Any) -> None:
        # on_connect() passes the socket to redis-py's parser.
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
def _link(server: Server) -> Iterator[RawConnection]:
    connection = server.connect(TIMEOUT_S)
    try:
        yield RawConnection(server, connection)
    finally:
        connection.disconnect()
