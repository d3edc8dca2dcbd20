"""``durable="snapshot"``: after a load, save the servers' data, and wait until it is on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import redis

from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..server.answers import ask_topology
from ..server.cluster_view import ClusterView
from ..server.options import SNAPSHOT, Options
from ..server.preflight import call
from ..server.reply_parser import parse_info
from ..server.settings import Server
from ..server.threads import shut_down
from ..transports.driver import Blocking, Steps, sleeping
from .load import Feature, Load

__all__ = ["Snapshot"]

# Seconds between polls of the servers.
ASKED_S = 0.1
# Seconds before a snapshot is repeated: servers report the time of the last save in seconds.
AGAIN_S = 1.0
# Maximum number of repeated snapshots.
MAX_AGAIN = 5
OPTION = Hint("durable", SNAPSHOT)
# INFO fields that change while a child process of the server makes progress: the number of keys
# that it has written (Redis 7.0, Valkey; updated once per 1,024 keys), or else its running time.
KEYS_WRITTEN = "current_save_keys_processed"
RUNNING_S = ("rdb_current_bgsave_time_sec", "aof_current_rewrite_time_sec")
# Beginnings of errors after which BGSAVE is tried again.
TRANSIENT = ("LOADING", "BUSY", "MASTERDOWN")


class NotSaved(TransportError):
    """A server could not save its data, or may have lost data of the load."""


class Save:
    """The snapshot of one server, from INFO and BGSAVE.

    A snapshot counts if it began after the end of the load and has updated the time of the last
    successful save. A running snapshot may have begun earlier, so it is waited for. It does not
    matter whether the server began the snapshot by itself.

    Attributes:
        done: whether the data is saved.
        progress: changes while the server makes progress.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.done = False
        self.progress: tuple[Any, ...] = ()
        self._run_id: str | None = None
        # rdb_last_save_time: in the last INFO, and when the running snapshot began. None if no INFO
        # was read, or if no snapshot that counts has begun.
        self._last: str | None = None
        self._before: str | None = None
        self._again_at, self._repeats = 0.0, 0

    def step(self, connection: Any) -> None:
        """Ask the server, and begin a snapshot if none is running.

        Raises:
            NotSaved: the snapshot failed.
            redis.RedisError, OSError: the server can't be used.
        """
        info = parse_info(call(connection, "INFO"))
        if info.get("run_id") != self._run_id:  # a restart ends a snapshot without an error
            self._run_id, self._last, self._before = info.get("run_id"), None, None
        last, before = info.get("rdb_last_save_time", ""), self._last
        saving = info.get("rdb_bgsave_in_progress") == "1"
        written = [info[KEYS_WRITTEN]] if KEYS_WRITTEN in info else map(info.get, RUNNING_S)
        self.progress = self._run_id, last, saving, *written
        self._last = last
        if self._before is not None:
            self.done = last != self._before
            if self.done or saving:
                return
            self._check_status(info)
            # Something ended the snapshot without an error, or its predecessor ended in the same
            # second. In either case, begin another one.
            self._before = None
            self._again_at = time.monotonic() + AGAIN_S
            self._repeats += 1
            if self._repeats > MAX_AGAIN:
                raise NotSaved(
                    f"{MAX_AGAIN} snapshots of {self._server} ended without a new "
                    "rdb_last_save_time (something ends them, or this server does not update it)"
                )
        if not saving and time.monotonic() >= self._again_at:
            if self._begin(connection):
                self._before = last
        elif saving and before not in (None, last):
            self._before = last  # the earlier snapshot has ended, and the server has begun another

    def _check_status(self, info: Mapping[str, str]) -> None:
        status = info.get("rdb_last_bgsave_status", "ok")
        if status != "ok":
            raise NotSaved(
                f"the snapshot of {self._server} failed (rdb_last_bgsave_status:{status}; the "
                "server's log has the cause, such as a full disk or a 'dir' without write "
                "permission: fix it, then run BGSAVE)"
            )

    def _begin(self, connection: Any) -> bool:
        """Begin a snapshot; return whether a snapshot has begun since INFO was read."""
        try:
            call(connection, "BGSAVE")
        except redis.exceptions.BusyLoadingError:
            return False
        except redis.ResponseError as error:
            text = str(error)
            if "already in progress" in text:  # the server has begun it since the last INFO
                return True
            # An AOF rewrite or another child process is running.
            if "BGSAVE right now" in text or "child process" in text or text.startswith(TRANSIENT):
                return False
            # The reply is a bare "-ERR" if the server can't fork.
            why, advice = f"refuses BGSAVE: {text}", "fix the cause"
            if not text:
                why = "can't fork a process for BGSAVE"
                advice = "its log has the cause, usually vm.overcommit_memory or too little memory"
            raise NotSaved(f"{self._server} {why} ({advice}, then run BGSAVE)") from error
        return True


class Saves:
    """Makes all primaries save their data, over separate connections; the methods block."""

    def __init__(self, server: Server, timeout: float | None) -> None:
        self._view = ClusterView(server)
        self._timeout = timeout
        self._connections: list[tuple[Server, Any]] = []
        self._saves: dict[Any, Save] = {}

    def record(self) -> None:
        """Record the server processes, to detect a restart that loses data."""
        try:
            self._connections = self._view.open_primaries(self._timeout)
            self._view.processes.record(self._connections)
        finally:
            self.close()

    def step(self) -> bool:
        """Ask all primaries that are not done; return whether all have saved their data.

        Raises:
            NotSaved: a server could not save its data, or was restarted and may have lost data.
            TransportError: a server can't be used; the next call connects again.
        """
        try:
            for server, connection in self._opened():
                save = self._saves.setdefault(_address(server), Save(server))
                if not save.done:
                    with server.explained():
                        save.step(connection)
            return all(self._saves[_address(server)].done for server, _ in self._connections) and (
                self._has_same_slots()
            )
        except BaseException:
            self.close()
            raise

    @property
    def progress(self) -> list[tuple[Any, ...]]:
        """Changes while any server makes progress."""
        return [save.progress for save in self._saves.values()]

    def _opened(self) -> list[tuple[Server, Any]]:
        """Return connections to all primaries; open them, and check for restarts, if needed."""
        if not self._connections:
            self._connections = self._view.open_primaries(self._timeout)
            for server, connection in self._connections:
                if restarted := self._view.processes.check(server, connection):
                    raise NotSaved(f"{restarted}: data of the load may be missing (load it again)")
        return self._connections

    def _has_same_slots(self) -> bool:
        """Return False, and start again, if slots have moved: they may be in no snapshot."""
        before = self._view.topology
        if before is None:
            return True
        server, connection = self._connections[0]
        with server.explained():
            now = ask_topology(connection, str(server), self._view.server.remap)
        if (now.nodes, now.slots) == (before.nodes, before.slots):
            return True
        self._saves.clear()
        self.close()
        return False

    def interrupt(self) -> None:
        """Make a call in another thread end soon."""
        for _, connection in self._connections:
            shut_down(connection)

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        connections, self._connections = self._connections, []
        for _, connection in connections:
            connection.disconnect()


def _address(server: Server) -> tuple[Any, Any]:
    return server.settings.get("host"), server.settings.get("port")


class Snapshot(Feature):
    """Counts the commands of a load as durable once each primary has saved its data.

    A load that ends early takes no snapshot.
    """

    def __init__(self, options: Options) -> None:
        self._timeout = options.timeout
        self._saves: Saves | None = None

    def connected(self, load: Load) -> Steps[None]:
        assert load.transport is not None
        self._saves = Saves(load.transport.server, self._timeout)
        yield Blocking(self._saves.record, self._saves.interrupt)

    def finishing(self, load: Load) -> Steps[None]:
        """Save the data.

        Raises:
            TransportError: a server could not save its data; all commands are in doubt.
            TransportTimeout: no server makes progress.
        """
        assert load.transport is not None and load.transport.lanes is not None
        lanes, report = load.transport.lanes, load.report
        if report.stopped or not report.commands:
            return
        try:
            yield from self._until_saved(load)
        except BaseException as error:
            lanes.note_saved(False)
            if isinstance(error, TransportError):
                error.report = load.report
            raise
        lanes.note_saved(True)

    def _until_saved(self, load: Load) -> Steps[None]:
        assert self._saves is not None
        saves, timeout = self._saves, self._timeout
        moved, seen = time.monotonic(), saves.progress
        while True:
            lost: TransportError | None = None
            try:
                if (yield Blocking(saves.step, saves.interrupt)):
                    return
            except NotSaved as error:
                text = Message(OPTION, f" was requested, but {error.args[0]}")
                raise TransportError(text) from error
            except TransportError as error:
                lost = error
            if saves.progress != seen:
                moved, seen = time.monotonic(), saves.progress
            if timeout is not None and time.monotonic() - moved > timeout:
                raise _no_progress(timeout, lost)
            yield from load.idle()
            yield from sleeping(ASKED_S)

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        if self._saves is not None:
            self._saves.close()


def _no_progress(timeout: float, lost: TransportError | None) -> TransportError:
    if lost is not None:
        text = f" was requested, but it is unknown whether the data was saved: {lost.args[0]}"
        return TransportError(Message(OPTION, text))
    text = f" was requested, but no snapshot has made progress for {timeout:g} s (a larger "
    return TransportTimeout(Message(OPTION, text, Hint("timeout", ...), " waits longer)"))
