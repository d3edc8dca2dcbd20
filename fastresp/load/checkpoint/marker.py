"""The checkpoint of a load, in the server: the row that it has reached, and who is loading."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import Hint, Message
from ...outcome.report import Report
from ...server.answers import parse_info
from ...server.settings import Server

__all__ = ["Checkpoint"]

# A loader that is alive renews its lease more often than this.
LEASE_MS = 30_000
NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
MOST_NAME = 200


@dataclass
class Done:
    """What the loads under a name have done so far."""

    rows: int = 0
    ended: str = ""


class Checkpoint:
    """The checkpoint of a load under a name.

    ``fastresp:{NAME}:row`` is the marker: each transaction of the load sets it to the number of
    rows that have run. ``fastresp:{NAME}`` is a hash: what is loaded, by whom, and the numbers of
    its connections. ``fastresp:{NAME}:lease`` exists while a loader is alive.

    Args:
        server: where the load goes.
        name: of the checkpoint.
        timeout: seconds to connect, and to wait for each reply.

    Raises:
        CheckpointError: the name has other characters than letters, digits, and ``-_.:``.
    """

    def __init__(self, server: Server, name: str, timeout: float | None) -> None:
        if not name or len(name) > MOST_NAME or not NAMES.issuperset(name):
            words = f" must be 1 to {MOST_NAME} letters, digits, or -_.: characters, not {name!r}"
            raise CheckpointError(Message(Hint("checkpoint"), words))
        self.name = name
        self._server = server
        self._timeout = timeout
        self._hash = f"fastresp:{{{name}}}".encode()
        self.marker = self._hash + b":row"
        self._lease = self._hash + b":lease"
        self._token = token_hex(16).encode()
        self._connection: Any = None
        self._run = b""
        # Whether nothing was there before, and nothing was sent yet.
        self._unused = False

    def claim(
        self, identity: dict[str, str], *, resume: bool, take_over: bool, clear: bool
    ) -> Done:
        """Become the only loader of the name; return what was done before.

        The connections of the loader before are closed, so that nothing of what it has sent can run
        after the marker was read.

        Args:
            identity: what is loaded; it must be what was loaded before.
            resume: go on if the name has a checkpoint; else there may be none.
            take_over: also if another loader is at work.
            clear: forget what was done before.

        Raises:
            CheckpointError: another load has the name, or the server can't keep a checkpoint.
            TransportError: the server can't be reached.
        """
        self._connection = self._server.connect(self._timeout)
        with self._server.explained():
            self._check_server()
            self._call("WATCH", self._hash)
            found = self._state()
            marker = self._call("GET", self.marker)
            if not found and marker is None:
                self._enter(identity, fresh=True)
                return Done()
            if clear:
                self._replace(identity, found, take_over=take_over, fresh=True)
                return Done()
            done = self._done(found, marker)
            if not resume:
                raise CheckpointError(self._exists(done))
            self._check_same(identity, found)
            if done.ended:
                self._call("UNWATCH")
                return done
            self._replace(identity, found, take_over=take_over, fresh=False)
            done.rows = self._row(self._call("GET", self.marker))
            return done

    def _replace(
        self, identity: dict[str, str], found: dict[str, str], *, take_over: bool, fresh: bool
    ) -> None:
        """Become the owner instead of the loader before.

        Its connections are closed first: whoever finds our name there need not know its numbers. It
        can't have written down others meanwhile, because of WATCH.
        """
        if not take_over:
            self._check_alone(found)
        self._close_former(found)
        self._enter(identity, fresh=fresh)

    def _check_server(self) -> None:
        """Refuse a server that may delete the marker."""
        info = {}
        with suppress(_response_error()):
            info = parse_info(self._call("INFO"))
        self._run = info.get("run_id", "").encode()
        policy = info.get("maxmemory_policy", "")
        if info.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
            raise CheckpointError(
                f"the server at {self._server} may delete the checkpoint when its memory is full "
                f"(maxmemory-policy {policy}); set noeviction, or one of the volatile policies"
            )

    def _enter(self, identity: dict[str, str], *, fresh: bool) -> None:
        """Write down who loads what, unless another loader did so since WATCH."""
        fields = {
            "owner": self._token, "loader": f"{socket.gethostname()}, process {os.getpid()}",
            "run": self._run, "clients": "",
        }  # fmt: skip
        if fresh:
            fields |= identity
        words = [part for item in fields.items() for part in item]
        commands: list[tuple[Any, ...]] = [
            ("HSET", self._hash, *words),
            ("SET", self._lease, self._token, "PX", LEASE_MS),
        ]
        if fresh:
            commands = [("DEL", self._hash), *commands, ("SET", self.marker, 0)]
        if not self._transaction(*commands):
            raise CheckpointError(
                f"another loader has just begun checkpoint {self.name!r}; wait until it has ended"
            )
        self._unused = fresh

    def _close_former(self, found: dict[str, str]) -> None:
        """Close the connections of the loader before; what they have sent and not run is lost."""
        if self._is_of_another_server(found):
            return
        for number in found.get("clients", "").split():
            try:
                self._call("CLIENT", "KILL", "ID", number)
            except _response_error() as error:
                raise CheckpointError(
                    f"can't close the connections of the loader before, which may still have "
                    f"commands under way: {error} (allow it with ACL SETUSER ... +client|kill, or "
                    f"end them: CLIENT KILL ID {number})"
                ) from error

    def _is_of_another_server(self, found: dict[str, str]) -> bool:
        """Return whether the server was started since, or is another one, as far as is known."""
        run = found.get("run", "").encode()
        return bool(run and self._run) and run != self._run

    def register(self, numbers: Sequence[int]) -> None:
        """Write down the connections of the load, before anything is sent.

        Args:
            numbers: the CLIENT ID of each.

        Raises:
            CheckpointError: another loader has taken over.
        """
        with self._server.explained():
            if not self._as_owner(("HSET", self._hash, "clients", " ".join(map(str, numbers)))):
                raise self._taken_over()
        self._unused = False

    def renew(self, row: int | None) -> None:
        """Renew the lease. Does nothing if the connection is lost: the load's own is, too.

        Args:
            row: also set the marker to it; None if the load does.

        Raises:
            CheckpointError: another loader has taken over.
        """
        commands: list[tuple[Any, ...]] = [("SET", self._lease, self._token, "PX", LEASE_MS)]
        if row is not None:
            commands.append(("SET", self.marker, row))
        with suppress(TransportError), self._server.explained():
            if not self._as_owner(*commands):
                raise self._taken_over()

    def finish(self, report: Report, rows: int) -> None:
        """Write down that all was loaded, and the totals.

        Raises:
            CheckpointError: another loader has taken over.
            TransportError: the server can't be reached.
        """
        totals = {
            "rows": rows, "commands": report.commands, "failed": report.failed,
        }  # fmt: skip
        with self._server.explained():
            try:
                self._finish(totals, rows)
            except _connection_error():
                # A server with a ``timeout`` closes it between two renewals of the lease.
                if not self._run:
                    raise
                self._finish(totals, rows)

    def _finish(self, totals: dict[str, int], rows: int) -> None:
        # After a restart some of the rows may be gone.
        if self._run and self._run_id() != self._run:
            raise CheckpointError(
                f"the server at {self._server} was started again before the end of the load was "
                f"written down; resume checkpoint {self.name!r}"
            )
        seconds, _ = self._call("TIME")
        words = ("ended", seconds, "totals", json.dumps(totals), "clients", "")
        if not self._as_owner(
            ("SET", self.marker, rows), ("HSET", self._hash, *words), ("DEL", self._lease)
        ):
            raise self._taken_over()

    def _taken_over(self) -> CheckpointError:
        return CheckpointError(
            f"another loader has taken over checkpoint {self.name!r}, or it was deleted"
        )

    def close(self) -> None:
        """Give up the lease if it is ours, and close the connection.

        If nothing was sent, for example because of a mistake in the template, nothing is left.
        """
        if self._connection is not None:
            left = [self._hash, self.marker] if self._unused else []
            with suppress(Exception):
                self._as_owner(("DEL", self._lease, *left))
            self._connection.disconnect()
            self._connection = None

    # Reading what is there.

    def _run_id(self) -> bytes:
        """Return the ID of the server's process; empty if the user may not know it."""
        with suppress(_response_error()):
            return parse_info(self._call("INFO")).get("run_id", "").encode()
        return b""

    def _state(self) -> dict[str, str]:
        flat = [part.decode(errors="replace") for part in self._call("HGETALL", self._hash)]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def _done(self, found: dict[str, str], marker: bytes | None) -> Done:
        """Return what was done, by the hash and the marker."""
        if not found or marker is None:
            what = "marker" if found else "description"
            raise CheckpointError(
                f"the {what} of checkpoint {self.name!r} is gone, so it is unknown which rows were "
                f"loaded: look at the data, and delete the rest of it (DEL {self._hash.decode()} "
                f"{self.marker.decode()})"
            )
        return Done(self._row(marker), found.get("ended", ""))

    def _row(self, marker: bytes | None) -> int:
        try:
            return int(marker or b"")
        except ValueError:
            raise CheckpointError(
                f"the marker of checkpoint {self.name!r} is not a number: {self.marker.decode()}"
            ) from None

    def _check_same(self, identity: dict[str, str], found: dict[str, str]) -> None:
        """Refuse to go on with another source, template or options."""
        for name, value in identity.items():
            if found.get(name) != value:
                raise CheckpointError(
                    f"checkpoint {self.name!r} is of another {name}: {found.get(name)!r}, and this "
                    f"is {value!r} (use another name for another load)"
                )

    def _check_alone(self, found: dict[str, str]) -> None:
        """Refuse to begin while another loader is at work."""
        if not self._is_of_another_server(found) and self._is_alive(found):
            raise CheckpointError(
                Message(
                    f"another loader is at work on checkpoint {self.name!r} "
                    f"({found.get('loader')}): wait until it has ended, or cut it off with ",
                    Hint("take_over", True),
                )
            )

    def _is_alive(self, found: dict[str, str]) -> bool:
        """Return whether the loader before has connections, or else a lease."""
        numbers = found.get("clients", "").split()
        if numbers:
            with suppress(_response_error()):
                return bool(self._call("CLIENT", "LIST", "ID", *numbers))
        return bool(self._call("EXISTS", self._lease))

    def _exists(self, done: Done) -> Message:
        where = f"is at row {done.rows:,}" if not done.ended else f"has ended, {done.rows:,} rows"
        return Message(
            f"there is a checkpoint {self.name!r}, which {where}: ",
            Hint("resume", True),
            " goes on with it, ",
            Hint("checkpoint_clear", True),
            " begins anew",
        )

    def _as_owner(self, *commands: tuple[Any, ...]) -> bool:
        """Run commands together, unless another loader has taken over; return whether they ran."""
        _, owner = self._together(("WATCH", self._hash), ("HGET", self._hash, "owner"))
        if owner == self._token:
            return self._transaction(*commands)
        self._call("UNWATCH")
        return False

    def _transaction(self, *commands: tuple[Any, ...]) -> bool:
        """Run commands together, unless what is watched has changed; return whether they ran."""
        return self._together(("MULTI",), *commands, ("EXEC",))[-1] is not None

    def _together(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands at once, and return their replies; raise the first error among them."""
        connection = self._connection
        connection.send_packed_command(connection.pack_commands(commands))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except _response_error() as error:
                replies.append(error)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _call(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()


def _response_error() -> type[Exception]:
    import redis

    return redis.ResponseError


def _connection_error() -> type[Exception]:
    import redis

    return redis.ConnectionError
