"""What a checkpoint stores: the source, the owner and its lease, and the progress.

A marker is a key that stores how many rows have run; see markers.py.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from secrets import token_hex
from typing import Any

import redis

from ...outcome.errors import CheckpointError
from ...outcome.messages import Hint, Message
from ...server.forks import on_fork
from ...server.reply_parser import pairs_of, texts_of, unexpected
from ...server.settings import Server
from .links import Link, Links, check_name, name_of, possible_later
from .markers import Markers, may_fence

__all__ = ["Description", "StoredProgress"]

# Duration of a lease in seconds; a live loader renews its lease more often.
LEASE_S = 30


@dataclass
class StoredProgress:
    """The progress that all loads with a checkpoint have made.

    Attributes:
        ran: for each marker, the number of rows that have run.
        seen: number of leading rows whose replies were all received.
        failed: number of failed commands in the first ``seen`` rows.
        resumed: whether an earlier load has used the checkpoint.
        ended: when the whole source was loaded, in seconds since 1970, as a string; empty if this
            has not happened yet.
        total: number of rows of the source when it was last loaded as a whole; 0 if it never was.
        unknown: the value of ``unseen`` when the previous load began.
    """

    ran: array[int] = field(default_factory=lambda: array("q", [0]))
    seen: int = 0
    failed: int = 0
    resumed: bool = False
    ended: str = ""
    total: int = 0
    unknown: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        """The number of leading rows whose commands have all run."""
        return self.total if self.ended else min(self.ran)

    @property
    def most(self) -> int:
        """The highest row count of earlier loads; the source must have at least this many rows."""
        return max(self.rows, *self.ran)

    @property
    def unseen(self) -> tuple[int, int] | None:
        """The range (start, stop) of rows that may have run, but whose replies were lost.

        None if there are no such rows.
        """
        end = max(self.ran)
        if self.ended or end <= self.seen:
            return self.unknown
        first, last = self.unknown or (self.seen, end)
        return min(first, self.seen), max(last, end)

    @property
    def seen_now(self) -> int:
        """The number of leading rows whose replies a resumed load does not count again.

        This is ``seen``; or ``rows`` if a server has lost rows, which are then loaded again.
        """
        return self.rows if max(self.ran) < self.seen else self.seen


def damaged_field(found: Mapping[str, str]) -> str:
    """Return the first missing or invalid field of a description; empty if all fields are valid."""
    for name, check in FIELDS.items():
        if name not in found and name not in NEEDED:
            continue
        try:
            right = check(found[name])
        except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
            right = False
        if not right:
            return name
    return ""


def is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,18}", text) is not None


def is_time(text: str) -> bool:
    return is_number(text) and datetime.fromtimestamp(int(text), UTC) is not None


def are_totals(text: str) -> bool:
    return is_number(str(json.loads(text)["rows"]))


def are_rows(text: str) -> bool:
    first, end = json.loads(text)
    return is_number(str(first)) and is_number(str(end))


def are_clients(text: str) -> bool:
    return all(
        isinstance(address, str) and isinstance(run, str) and all(map(is_number, map(str, ids)))
        for address, run, ids in json.loads(text)
    )


# The check of each field of a description.
FIELDS: dict[str, Callable[[str], object]] = {
    "seen": is_number,
    "failed": is_number,
    "lease": is_time,
    "ended": lambda text: text == "" or is_time(text),
    "totals": are_totals,
    "unknown": are_rows,
    "clients": are_clients,
    "generation": re.compile("[0-9a-f]{8}").fullmatch,
    "fence": re.compile("([0-9a-f]{16})?").fullmatch,
    "markers": re.compile("(complete)?").fullmatch,
}
# Required fields: every load writes them when it starts.
NEEDED = frozenset(("lease", "ended", "clients", "generation", "fence", "markers"))


class Description:
    """The hash ``fastresp:{NAME}``: the source, the owner and the IDs of the owner's connections.

    The lease is a field of this hash, not an expiring key: the first expiring key on a server slows
    down each command by 2%. All other keys of a checkpoint are markers; see ``Markers``.

    Args:
        server: the server of the load.
        name: name of the checkpoint.
        timeout: seconds to connect, and to wait for each reply.
        failed: returns the number of failed commands of this load and of earlier loads.

    Raises:
        CheckpointError: the name is empty, longer than 200 characters, or contains characters other
            than letters, digits, and ``-_.:``.
    """

    def __init__(
        self, server: Server, name: str, timeout: float | None, failed: Callable[[], int] = int
    ) -> None:
        check_name(name, "checkpoint")
        self.name = name
        self._server = server
        self._timeout = timeout
        self._hash = f"fastresp:{{{name}}}".encode()
        self._token = token_hex(16).encode()
        self._opened: Links | None = None
        self.markers: Markers
        self._connections: Sequence[tuple[str, int]] = ()
        # The run IDs of the servers at the start of this load.
        self._runs: frozenset[str] = frozenset()
        # Whether scripts set the markers, so that this loader can be fenced off: see markers.py.
        self.fenced = False
        # Whether the checkpoint is new, and no rows were sent yet.
        self._unused = False
        self.failed = failed

    def _connect(self) -> Links:
        return Links(self._server, self._timeout, self._hash, name_of(self.name))

    @property
    def _links(self) -> Links:
        assert self._opened is not None
        return self._opened

    @property
    def _home(self) -> Link:
        return self._links.home

    @property
    def of_slots(self) -> bool:
        """Whether the server is a cluster; if so, each slot has a marker."""
        return self._opened is not None and self._opened.topology is not None

    def open(
        self,
        connections: int,
        *,
        batched: bool,
        names: Sequence[str] = (),
        links: Links | None = None,
    ) -> None:
        """Connect to the server, or to all primaries of the cluster.

        Args:
            connections: number of connections of the load.
            batched: whether the load's commands are sent in transactions.
            names: names of the commands in the transactions.
            links: connections to use, and to leave open in ``close()``; None to open new ones.

        Raises:
            CheckpointError: a server may evict the checkpoint.
            TransportError: a server can't be reached.
        """
        links = self._connect() if links is None else links.at_home_of(self._hash)
        self._opened = links
        on_fork(self, Description._release)
        self._runs = frozenset(link.run for link in links.all)
        self.markers = Markers(self.name, self._hash, links, connections, batched=batched)
        for link in links.all:
            link.check_keeps()
        if batched and names:
            self.fenced = self.markers.fenced = may_fence(links, names)

    def _release(self) -> None:
        """Forget the connections after a fork: they belong to the parent process."""
        self._opened = None

    @property
    def _nothing(self) -> array[int]:
        return array("q", bytes(8 * len(self.markers.keys)))

    def _look_again(self) -> None:
        """Reconnect to the current primaries of the cluster.

        Raises:
            CheckpointError: a node was restarted or replaced, and may lack rows.
        """
        links = self._connect()
        self._links.close()
        self._opened = self.markers.links = links
        for link in links.all:
            if link.run not in self._runs:
                raise possible_later(
                    f"the node at {link.server} has become a primary since the load began, or was "
                    f"restarted, and may lack rows; resume checkpoint {self.name!r}"
                )

    def _state(self) -> dict[str, str]:
        try:
            reply = pairs_of("HGETALL", self._home.call("HGETALL", self._hash))
        except redis.ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            raise self._damaged() from error
        found = {
            name.decode(errors="replace"): value.decode(errors="replace")
            for name, value in reply.items()
        }
        if found and (field := damaged_field(found)):
            value = repr(found[field][:40]) if field in found else "missing"
            raise self._damaged(f" (its field {field!r} is {value})")
        return found

    def _damaged(self, why: str = "") -> CheckpointError:
        return CheckpointError(
            f"{self._hash.decode()} is not a checkpoint description written by fastresp{why}: "
            "find out who uses the key, then use another checkpoint name or delete the key"
        )

    def _done(self, found: Mapping[str, str]) -> StoredProgress:
        """Return the progress stored in the hash; the caller must set ``ran`` from the markers."""
        if not found or not (self.markers.several or self.markers.exist()):
            what = "marker" if found else "description"
            raise CheckpointError(
                Message(
                    f"the {what} of checkpoint {self.name!r} is gone, so it is unknown which rows "
                    "were loaded: check the data, and start over with ",
                    Hint("checkpoint_clear", True),
                )
            )
        runs = {run for _, run, _ in json.loads(found["clients"])}
        self.markers.expect(bool(found["markers"]), runs)
        self.markers.begin(found["generation"], found["fence"])
        totals = json.loads(found.get("totals") or "{}")
        unknown = json.loads(found.get("unknown") or "null")
        return StoredProgress(
            self._nothing,
            seen=int(found.get("seen", 0)),
            failed=int(found.get("failed", 0)),
            resumed=True,
            ended=found.get("ended", ""),
            total=int(totals.get("rows", 0)),
            unknown=None if unknown is None else (int(unknown[0]), int(unknown[1])),
        )

    def _now(self) -> int:
        """Return the server's time in seconds since 1970."""
        seconds = texts_of("TIME", reply := self._home.call("TIME"))[:1]
        if not seconds or not re.fullmatch(rb"[0-9]{1,18}", seconds[0]):
            raise unexpected("TIME", reply)
        return int(seconds[0])

    def _lease(self) -> int:
        """Return the end of a lease that starts now, in seconds since 1970."""
        return self._now() + LEASE_S

    def _exists(self, done: StoredProgress) -> Message:
        where = f"is at row {done.rows:,}" if not done.ended else f"ended at row {done.rows:,}"
        return Message(
            f"checkpoint {self.name!r} exists and {where}: ",
            Hint("resume", True),
            " continues it, ",
            Hint("checkpoint_clear", True),
            " starts over",
        )

    def taken_over(self) -> CheckpointError:
        """Return the error for a loader that is no longer the owner of its checkpoint."""
        return CheckpointError(
            f"another loader has taken over checkpoint {self.name!r}, or it was deleted"
        )

    def _hset(self, **fields: Any) -> tuple[Any, ...]:
        """Return the command that sets fields of the description."""
        return ("HSET", self._hash, *chain.from_iterable(fields.items()))

    def _as_owner(self, *commands: tuple[Any, ...]) -> bool:
        """Run commands in one transaction if this loader is the owner; return whether they ran."""
        if self._is_owner():
            return self._transaction(*commands)
        self._home.call("UNWATCH")
        return False

    def _is_owner(self) -> bool:
        """WATCH the hash, and return whether this loader is the owner."""
        _, owner = self._home.together(("WATCH", self._hash), ("HGET", self._hash, "owner"))
        return bool(owner == self._token)

    def _transaction(self, *commands: tuple[Any, ...]) -> bool:
        """Run commands in one transaction; return False if a watched key has changed.

        Raises:
            CheckpointError: a command failed; the other commands have run.
        """
        replies = self._home.together(("MULTI",), *commands, ("EXEC",))[-1]
        if not isinstance(replies, list | None):
            raise unexpected("EXEC", replies)
        for reply in replies or ():
            if isinstance(reply, Exception):
                raise CheckpointError(
                    f"checkpoint {self.name!r} can't be written: {reply} (fix the cause, such as "
                    "a missing permission, then resume the load)"
                ) from reply
        return replies is not None
