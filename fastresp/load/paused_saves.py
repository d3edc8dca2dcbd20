"""Pause the saves of servers during a load: snapshots, and rewrites of the append-only file.

Each load has a connection with the name ``PAUSING`` plus the load's token; if the load is killed,
the server drops the connection. At its end, a load uses the name ``RESTORING``, and restores the
settings only if no other load is pausing. A load that begins waits until no load is restoring. So
the last of several loads restores the settings, whatever the order of their commands.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any

import redis

from ..outcome.errors import FastrespError, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import Report
from ..server.cluster_view import ClusterView
from ..server.forks import is_own, on_fork
from ..server.options import Options
from ..server.preflight import Requirements, call
from ..server.reply_parser import bytes_of, fields_of
from ..server.settings import Server, as_server
from ..server.threads import in_parallel, in_thread, shut_down
from ..transports.base import add_report
from ..transports.driver import Blocking, Steps
from .load import Feature, Load
from .paused_settings import SETTINGS, Setting, is_paused, restoring_commands

__all__ = ["PausedSaves"]

# Names of connections; checkpoints use names that begin with "fastresp:".
PAUSING, RESTORING = b"fastresp-pausing-saves:", b"fastresp-restoring-saves:"
# Maximum seconds to connect, to wait for a reply, and to restore the settings of all servers.
MAX_S = 5.0
# Minimum seconds for each server: only a few are restored in parallel, so the last start late.
LATE_S = 1.0
# Seconds between searches for lost connections and new primaries.
CHECKED_S = 2.0
LOOK_S = 0.02
RETRY_S = 0.1
PERMISSIONS = "+config|get +config|set +client|setname +client|list"


class PausedServer:
    """A server whose saves are paused, until ``restore()``.

    The methods block. ``restore()`` may be called at any time: after an exception in ``pause()``,
    or while another thread runs it.

    Args:
        server: the server.
        token: identifies the load.
        timeout: seconds to connect, and to wait for a reply.
        replaceable: whether another server takes over if this one ends, as in a cluster.

    Attributes:
        before: the paused settings, with their original values.
        shared: whether another load still pauses the saves at the end.
        notes: sentences for the report.
        error: why the settings can't be restored; None if they were restored.
    """

    def __init__(
        self, server: Server, token: bytes, timeout: float, *, replaceable: bool = False
    ) -> None:
        self.server = server
        self.before: dict[str, str] = {}
        self.shared = False
        self.notes: list[str] = []
        self.error: FastrespError | None = None
        self._token = token
        self._timeout = timeout
        self._replaceable = replaceable
        self._asked = False
        self._connection: Any = None
        self._ending = False

    def pause(self) -> None:
        """Pause the saves, and keep a connection that shows this to other loads.

        Raises:
            TransportError: the server refuses this, or can't be reached.
        """
        self._connection = connection = self.server.connect(self._timeout)
        if self._ending:
            self._close()
            return
        with self.server.explained():
            try:
                call(connection, "CLIENT", "SETNAME", PAUSING + self._token)
                alone = not self._others_pausing(connection)
                values = {setting: _value(connection, setting) for setting in SETTINGS}
                if alone and not self._asked and any(is_paused(*each) for each in values.items()):
                    self._note(f"an earlier load had left the saves of {self.server} paused")
                self._pause(connection, values)
            except redis.ResponseError as error:
                raise _refused(self.server, error) from error

    def _pause(self, connection: Any, values: dict[Setting, str]) -> None:
        rewrites = (
            _text(connection, "appendonly") == "yes"
            and _text(connection, "auto-aof-rewrite-percentage") != "0"
        )
        due = {
            setting: value
            for setting, value in values.items()
            if setting.paused(value) != setting.restored(value)
            and (setting.name == "save" or rewrites or is_paused(setting, value))
        }
        self.before = {setting.name: setting.restored(value) for setting, value in due.items()}
        self._asked = True
        for setting, value in due.items():
            if not self._ending and not is_paused(setting, value):
                call(connection, "CONFIG", "SET", setting.name, setting.paused(value))

    def _others_pausing(self, connection: Any) -> bool:
        """Wait until no load is restoring; return whether another load is pausing."""
        end = time.monotonic() + self._timeout
        pausing, restoring = _loads(connection)
        while restoring and time.monotonic() < end:
            time.sleep(LOOK_S)
            pausing, restoring = _loads(connection)
        return bool(pausing - {self._token})

    def check(self) -> None:
        """Keep the connection open. If it was lost, pause again: the server may have restarted.

        Raises:
            TransportError: the server refuses this, or can't be reached.
        """
        if self._connection is not None:
            with suppress(redis.RedisError, OSError):
                call(self._connection, "CLIENT", "SETNAME", PAUSING + self._token)
                return
            self._close()
        self.pause()

    def end(self) -> None:
        """Make ``pause()`` in another thread end soon, without a further change."""
        self._ending = True
        connection = self._connection
        if connection is not None:
            shut_down(connection)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def restore(self, end: float) -> None:
        """Restore the settings, unless another load is pausing, or a user has changed them.

        Uses a new connection, since the other one may wait for a reply.

        Args:
            end: when to give up, from ``time.monotonic()``.
        """
        self.end()
        end = max(end, time.monotonic() + LATE_S)
        while True:
            try:
                left = max(end - time.monotonic(), LOOK_S)
                connection = self.server.connect(min(left, self._timeout))
                try:
                    with self.server.explained():
                        self._restore(connection, end)
                finally:
                    connection.disconnect()
                self.error = None
                return
            except FastrespError as error:
                self.error = error
                if self._replaceable and "Connection refused" in str(error):
                    self.error = None
                    self._note(f"{self.server} has ended, and with it the pause of its saves")
                    return
                if _is_refusal(error.__cause__) or time.monotonic() > end:
                    return
            time.sleep(RETRY_S)

    def _restore(self, connection: Any, end: float) -> None:
        call(connection, "CLIENT", "SETNAME", RESTORING + self._token)
        pausing, restoring = _loads(connection)
        # Once our other connection has ended, nothing that pause() has sent can still run.
        while self._token in pausing and time.monotonic() < end:
            time.sleep(LOOK_S)
            pausing, restoring = _loads(connection)
        others = pausing - restoring - {self._token}
        self.shared = bool(others)
        if others:
            names = ", ".join(sorted(map(_host_and_process, others)))
            self._note(f"the saves of {self.server} are still paused by a load of {names}")
        elif self._asked and not self.before:
            self._note(f"{self.server} makes no saves by itself: nothing was paused")
        for setting in () if others else SETTINGS:
            value = _value(connection, setting)
            if is_paused(setting, value):
                call(connection, "CONFIG", "SET", setting.name, setting.restored(value))
            elif value != self.before.get(setting.name, value):
                changed = f'"{value}" on {self.server} during the load, and kept'
                self._note(f"{setting.name} was changed to {changed}")

    def _note(self, text: str) -> None:
        if text not in self.notes:  # restore() may have tried twice
            self.notes.append(text)

    @property
    def failure(self) -> str:
        """Why the settings were not restored, and what to do; empty if they were."""
        if self.error is None or not self.before:
            return ""
        commands = restoring_commands(self.before)
        return (
            f"can't restore the saves of {self.server}: {self.error.args[0]}; unless this server "
            f"has restarted since, run {commands}"
        )


def _is_refusal(cause: BaseException | None) -> bool:
    """Return whether a server would refuse the same command again; not after BUSY (a script)."""
    return isinstance(cause, redis.ResponseError) and not str(cause).startswith("BUSY ")


def _loads(connection: Any) -> tuple[set[bytes], set[bytes]]:
    """Return the tokens of the loads that are pausing saves, and of those that restore them."""
    clients = bytes_of("CLIENT LIST", call(connection, "CLIENT", "LIST"))
    names = re.findall(rb" name=(\S+)", clients)
    return (
        {name.removeprefix(PAUSING) for name in names if name.startswith(PAUSING)},
        {name.removeprefix(RESTORING) for name in names if name.startswith(RESTORING)},
    )


def _host_and_process(token: bytes) -> str:
    return token.decode(errors="replace").rpartition(":")[0]


def _text(connection: Any, name: str) -> str:
    """Return a setting; raise ResponseError if the server does not have it."""
    value = fields_of(call(connection, "CONFIG", "GET", name)).get(name.encode())
    if not isinstance(value, bytes):
        raise redis.ResponseError(f"it has no setting {name}")
    return value.decode(errors="replace")


def _value(connection: Any, setting: Setting) -> str:
    """Return a setting; raise ResponseError if it can't be paused."""
    value = _text(connection, setting.name)
    try:
        setting.paused(value)
    except ValueError:
        raise redis.ResponseError(f"its setting {setting.name} is {value!r}") from None
    return value


def _refused(server: Server, error: redis.ResponseError) -> TransportError:
    advice = "ask its provider or administrator to pause them"
    if isinstance(error, redis.exceptions.NoPermissionError):
        advice = f"allow it with ACL SETUSER ... {PERMISSIONS}"
    start = f"can't pause the saves of {server}: {error} (nothing was sent; {advice}, or leave out "
    return TransportError(Message(start, Hint("pause_saves"), ")"))


class PausedServers:
    """All servers of a load whose saves are paused.

    Args:
        timeout: seconds to connect, and to wait for a reply; None, or more than 5, means 5.
    """

    def __init__(self, timeout: float | None) -> None:
        host = re.sub(r"[^!-~]", "_", socket.gethostname())
        self._token = f"{host}:{os.getpid()}:{secrets.token_hex(4)}".encode()
        self._timeout = min(timeout or MAX_S, MAX_S)
        self._ending = False
        self.by_name: dict[str, PausedServer] = {}
        self.over = False
        on_fork(self)

    def pause(self, servers: Sequence[Server]) -> None:
        """Pause the saves of these servers; raise the first TransportError."""
        added = [self._add(each) for each in servers]
        for failed in in_parallel(added, PausedServer.pause):
            if failed is not None:
                raise failed

    def check(self, servers: Iterable[Server]) -> None:
        """Pause the saves of new servers, and of servers that have restarted, if possible."""
        for server in {str(each): each for each in servers}.values():
            with suppress(TransportError):  # Sentinel knows no primary
                self._add(server)
        if self._ending:  # set before restore() looks at by_name
            return
        for each in list(self.by_name.values()):
            with suppress(TransportError):  # tried again later
                each.check()

    def _add(self, server: Server) -> PausedServer:
        """Add a server if it is new; with Sentinel, the current primary, which may change."""
        pinned = server.pinned(self._timeout)
        if str(pinned) not in self.by_name:
            self.by_name[str(pinned)] = PausedServer(
                pinned, self._token, self._timeout,
                replaceable=pinned.announced or pinned is not server,
            )  # fmt: skip
        return self.by_name[str(pinned)]

    def end(self) -> None:
        """Make ``pause()`` and ``check()`` in other threads end soon."""
        self._ending = True
        for each in list(self.by_name.values()):
            each.end()

    def restore(self) -> None:
        """Restore the settings, in at most 5 s; a KeyboardInterrupt is raised after that.

        Does nothing if they are already restored, or in a forked child.
        """
        if self.over or not self.by_name or not is_own(self):
            return
        interruption: BaseException | None = None
        task: Future[None] | None = None
        # Only the main thread is interrupted.
        if threading.current_thread() is threading.main_thread():
            while task is None or not task.done():
                try:
                    task = task or in_thread(self._restore)
                    wait([task])
                except RuntimeError:  # can't start a thread
                    break
                except BaseException as error:
                    interruption = error
        if not self.over:
            self._restore()
        if interruption is not None:
            raise interruption

    def _restore(self) -> None:
        end = time.monotonic() + self._timeout
        self.end()
        servers = list(self.by_name.values())
        try:
            in_parallel(servers, partial(PausedServer.restore, end=end))
        except RuntimeError:  # can't start a thread
            for each in servers:
                each.restore(end)
        self.over = True


class PausedSaves(Feature):
    """Pauses the saves of the servers of a load, and restores the settings at its end.

    Args:
        options: the options of the load.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._servers = PausedServers(options.timeout)
        self._checked = 0.0
        self._check: Future[None] | None = None

    def connected(self, load: Load) -> Steps[None]:
        """Pause the saves of the server, or of each primary.

        Raises:
            TransportError: a server refuses this; nothing was sent.
        """
        assert load.transport is not None
        server, answers = load.transport.server, load.transport.answers
        topology = None if answers is None else answers.topology
        servers = [server] if topology is None else server.nodes_of(topology.nodes, 1)
        # In case a second Ctrl-C ends the load before ended() is called.
        atexit.register(self._servers.restore)
        yield Blocking(partial(self._servers.pause, servers), self._servers.end)
        self._checked = time.monotonic()

    def _find(self) -> None:
        """Find settings that a killed load left paused, although there is nothing to load."""
        view = ClusterView(as_server(self._options.server, Requirements(nodes=True)))
        opened = view.open_primaries(self._options.timeout)
        for _, connection in opened:
            connection.disconnect()
        self._servers.pause([server for server, _ in opened])

    def idle(self, load: Load) -> Steps[None]:
        """At intervals, look in a thread for lost connections and new primaries."""
        yield from ()
        if time.monotonic() < self._checked + CHECKED_S or load.transport is None:
            return
        self._checked = time.monotonic()
        if self._check is None or self._check.done():
            lanes = load.transport.lanes
            servers = [] if lanes is None else [lane.server for lane in lanes.lanes]
            with suppress(RuntimeError):  # no memory for a thread
                self._check = in_thread(partial(self._servers.check, servers))

    def ended(self, load: Load) -> Steps[None]:
        """Restore the settings, and say in the report what happened.

        Raises:
            TransportError: the load is complete, but the settings of a server can't be restored.
        """
        servers, error, second = self._servers, load.error, None
        try:
            if load.transport is None and error is None:  # an earlier load was complete
                yield Blocking(self._find)
            if not isinstance(error, GeneratorExit):  # after it, nothing can be awaited
                yield Blocking(servers.restore)
        except BaseException as caught:
            second = caught
        try:
            servers.restore()
        except BaseException as caught:
            second = caught
        atexit.unregister(servers.restore)
        # After a Ctrl-C or a cancellation, another one changes nothing.
        if second is not None and (
            error is None or isinstance(error, Exception) or isinstance(second, GeneratorExit)
        ):
            add_report(second, load.report, str(load.report))
            error = second
        _note(load.report, list(servers.by_name.values()), error)
        if second is not None and error is second:
            raise second


def _note(report: Report, servers: Sequence[PausedServer], error: BaseException | None) -> None:
    """Add what happened to the report, and failures to the exception that ends the load."""
    failures = [each.failure for each in servers if each.failure]
    _count(report, servers, failures)
    if failures and error is None:
        raise TransportError("; ".join(failures), report)
    for failure in failures:
        assert error is not None
        error.add_note(f"fastresp: {failure}")
        if getattr(error, "report", None) is not report:
            logging.getLogger("fastresp").warning("%s", failure)


def _count(report: Report, servers: Sequence[PausedServer], failures: list[str]) -> None:
    paused = [each for each in servers if each.before]
    report.saves_paused = len(paused)
    report.saves_restored = sum(not (each.shared or each.failure) for each in paused)
    report.saves_notes = [note for each in servers for note in each.notes] + failures
    report.saves_notes += [
        f"the saves of {each.server} were not paused: {each.error.args[0]}"
        for each in servers
        if each.error is not None and not each.before
    ]
