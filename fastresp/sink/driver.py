"""For the driver program of an engine: parse options, and pass the totals of a job to listeners.

Options are passed as text; their names are case-insensitive. A listener is a function of the driver
process. The job may end in another process on the same machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from hmac import compare_digest
from multiprocessing.connection import Client, Connection, Listener
from secrets import token_bytes, token_hex
from threading import ExceptHookArgs, Thread, current_thread, excepthook
from typing import Any
from urllib.parse import urlsplit

from ..server.options import MODES
from ..server.preflight import Requirements
from ..server.settings import Server
from .arrow import HashPartitions
from .sink import OPTIONS, Sink
from .totals import Totals

__all__ = [
    "Address", "announce", "end_job", "listen", "reading_options", "sink_options",
]  # fmt: skip

# Maximum seconds to wait for a listener to return.
TOLD_S = 60.0
# Options whose values are never parsed as numbers or constants.
TEXTS = frozenset(("server", "template", "pattern", "exactly_once", "split", "rejects"))
CONSTANTS = {"true": True, "false": False, "none": None}
# Options of the engine itself, and aliases of our options.
ENGINE_OPTIONS = frozenset(("checkpointlocation",))
ALIASES = {"command": "template", "url": "server", "numpartitions": "partitions"}
# Maximum default number of partitions to read.
MAX_PARTITIONS = 4
PASSWORD_ADVICE = "set REDIS_URL where the tasks run, or spark.fastresp.password"


@dataclass(frozen=True)
class Address:
    """The address of a listener function.

    Attributes:
        host: host of a socket that only this machine can reach.
        port: port of the socket.
        key: secret that both sides know; never shown.
        number: index of the function among the listeners of the driver.
    """

    host: str
    port: int
    key: bytes = field(repr=False)
    number: int

    def tell(self, totals: Totals, **names: Any) -> None:
        """Call the listener with totals and keyword arguments, unless the driver has ended."""
        with suppress(OSError, EOFError), Client((self.host, self.port)) as connection:
            connection.send_bytes(self.key)
            connection.send((self.number, totals, names))
            connection.poll(TOLD_S)  # until the function has returned


def announce(totals: Totals, address: Address | None, **names: Any) -> None:
    """Write the totals of a job to the driver's log, and pass them to the listener, if any."""
    warning = "WARNING: the job failed; its committed tasks loaded " if totals.job_failed else ""
    print(f"fastresp: {warning}{totals}", file=sys.stderr, flush=True)
    if address is not None:
        address.tell(totals, **names)


def listen(listener: Callable[..., object]) -> Address:
    """Register a listener, which is called with the totals of each ended job.

    The listener is called in a thread with the arguments of ``Address.tell()``. Exceptions are
    printed, as in any thread.
    """
    driver = _driver()
    driver.functions.append(listener)
    host, port = driver.socket.address
    return Address(host, port, driver.key, len(driver.functions) - 1)


class _Driver:
    """The socket for all listeners of this process."""

    def __init__(self) -> None:
        self.key = token_bytes(32)
        self.functions: list[Callable[..., object]] = []
        self.socket: Any = Listener(("127.0.0.1", 0))
        Thread(target=self._serve, name="fastresp-listener", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with suppress(ConnectionError):
                connection = self.socket.accept()
                # Each client gets a thread, so that a silent client does not block other clients.
                Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: Connection) -> None:
        with suppress(EOFError, OSError), connection:
            # Unpickle only data of clients that know the key.
            if not compare_digest(connection.recv_bytes(len(self.key)), self.key):
                return
            number, totals, names = connection.recv()
            try:
                self.functions[number](totals, **names)
            except BaseException:
                excepthook(ExceptHookArgs((*sys.exc_info(), current_thread())))
            connection.send(None)


@cache
def _driver() -> _Driver:
    return _Driver()


def end_job(
    sink: Sink,
    totals: Sequence[Totals],
    address: Address | None,
    query: str | None = None,
    epoch: int | None = None,
) -> None:
    """End a job, or an epoch of a stream, after all tasks have committed; announce the totals.

    Args:
        query: the ID of the stream, for an epoch.
        epoch: number of the epoch; None for a job that is not part of a stream.

    Raises:
        CheckpointError, TransportError: as in ``Sink.finish()``.
    """
    if epoch is None:
        sink.finish(totals)
    elif totals:
        sink.finish_epoch(str(query), epoch, totals)
    announce(Totals.sum(totals), address, epoch=epoch)


def sink_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of a ``Sink`` for options in text form.

    Args:
        texts: the options by name. ``rateLimit``, ``ratelimit`` and ``rate_limit`` are the same
            name; so are ``command`` and ``template``.
        password: the server's password.
        tasks: number of tasks that load at the same time, if no option sets it.

    Raises:
        ValueError: an option is unknown or missing, or contains a password, which the engine
            would show; or ``exactly_once`` is set, and this process does not know the server's
            URL, which it needs to complete the job.
    """
    known = ("server", "template", "exactly_once", "split", "rejects", "tasks", *OPTIONS)
    found = _options(texts, known)
    if "template" not in found:
        raise ValueError("the option 'command' is needed, such as 'HSET user:{id} {**}'")
    if "exactly_once" in found and "server" not in found and not os.environ.get("REDIS_URL"):
        raise ValueError(
            "with 'exactlyOnce' the driver ends the job, so set REDIS_URL for the driver before "
            "its session begins, or name the server by the option 'server'"
        )
    mode = found.get("mode")
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be 'commands', 'merge' or 'serialize', not {mode!r}")
    # A new ID for each run, since another run may divide the rows differently.
    split = f"run {token_hex(4)}"
    return {"server": None, "password": password, "tasks": tasks, "split": split} | found


def reading_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of ``HashPartitions``; see ``sink_options()``."""
    names = {each.name for each in fields(HashPartitions)}
    found = _options(texts, names - {"schema", "password"})
    if "pattern" not in found:
        raise ValueError("the option 'pattern' is needed, such as 'user:{id}' or 'user:*'")
    # Each partition scans all keys of a single server.
    partitions = min(tasks or MAX_PARTITIONS, MAX_PARTITIONS)
    return {"password": password, "partitions": partitions} | found


def _options(texts: Mapping[str, str], known: Iterable[str]) -> dict[str, Any]:
    names = {name.replace("_", ""): name for name in known}
    names |= {other: name for other, name in ALIASES.items() if name in names.values()}
    found = {}
    for option, text in texts.items():
        if option.lower() in ENGINE_OPTIONS:
            continue
        if option.lower() == "path":
            raise ValueError("save() and load() accept no path here; use the option 'server'")
        if option.lower() == "password":
            raise ValueError(f"a password can't be passed as an option; {PASSWORD_ADVICE}")
        name = names.get(option.replace("_", "").lower())
        if name is None:
            every = ", ".join(sorted(set(names.values())))
            raise ValueError(f"the option {option!r} is unknown; the options are {every}")
        found[name] = text if name in TEXTS else _value(text)
    server = found.get("server")
    settings = {} if server is None else Server(server, Requirements(nodes=True)).settings
    if any(settings[name] for name in settings if name.endswith("password")):  # or ssl_password
        raise ValueError(
            "the URL in the option 'server' has a password, which the engine would show; remove "
            f"it, and {PASSWORD_ADVICE}"
        )
    if urlsplit(found.get("rejects", "")).password:
        raise ValueError("the URL in 'rejects' has a password, which the engine would show")
    return found


def _value(text: str) -> Any:
    """Parse a number, ``true``, ``false`` or ``none``; return any other text unchanged."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
