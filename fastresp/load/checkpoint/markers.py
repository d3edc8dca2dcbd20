"""The markers of a checkpoint: keys that store how many rows have run."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import Hint, Message
from ...resp.slots import UNKNOWN, Rules, tags
from ...resp.values import pack
from ...server.options import MAX_CONNECTIONS
from ...server.reply_parser import bytes_of
from ...sources.files.command_files import argument_of
from .fencing import FENCE, FENCE_BYTES, LEVEL
from .links import Link, Links, redis_error

__all__ = ["Markers", "has_run"]


# The value of a marker, without the generation: the loader's token, if any, and the number of rows.
ROWS = re.compile(rb"(?:[0-9a-f]{%d}:)?([0-9]{1,18})" % (2 * FENCE_BYTES))


class Markers:
    """The markers of a checkpoint.

    One marker is enough for one connection, whose commands run in order. Several connections have
    one marker each. A cluster has one marker per slot, stored in the slot: so the marker is moved,
    persisted, replicated and lost together with the slot's data. If there are several markers,
    their values start with the generation: random digits that distinguish this checkpoint from a
    deleted checkpoint of the same name.

    Args:
        name: name of the checkpoint.
        hash_key: the key of the checkpoint's description.
        links: connections to all servers.
        connections: number of connections of the load.
        batched: whether the load's commands are sent in transactions, which set the markers.
    """

    def __init__(
        self, name: str, hash_key: bytes, links: Links, connections: int, *, batched: bool
    ) -> None:
        self.kind = "one"
        self.keys = [hash_key + b":row"]
        of_connections = [b"%s:row:%d" % (hash_key, number) for number in range(MAX_CONNECTIONS)]
        # The markers of this checkpoint for every number of connections.
        self.of_all = self.keys + of_connections
        if links.topology is not None:
            self.kind = "of slots"
            self.keys = [b"fastresp:{%s}:%s:row" % (tag, name.encode()) for tag in tags()]
        elif batched and connections > 1:
            self.kind = f"of {connections} connections"
            self.keys = of_connections[:connections]
        # Prefix of the values of this checkpoint's markers. A value with a different prefix is from
        # a deleted checkpoint of the same name.
        self._generation = b""
        # Whether all markers were set when the load started; if so, a missing marker was removed.
        self.complete = links.topology is None
        # The run IDs of the servers at the start of the previous load.
        self._runs: Collection[str] = ()
        # Prefix of each value: the generation, and the loader's token, if any.
        self.prefix = b""
        self.fenced = False  # whether scripts set the markers, which then start with a prefix
        self._ran = array("q", bytes(8 * len(self.keys)))
        self.links = links
        self._name = name
        self._hash = hash_key

    @property
    def several(self) -> bool:
        """Whether there are several markers, whose values start with the generation."""
        return len(self.keys) > 1

    def begin(self, generation: str, fence: str) -> None:
        """Set the prefix of all values: the generation, and ``fence``, the loader's token."""
        self._generation = f"{generation}:".encode() if self.several else b""
        self.prefix = self._generation + (f"{fence}:".encode() if fence else b"")

    def expect(self, complete: bool, runs: Collection[str]) -> None:
        """Set the state in which earlier loads left the markers.

        Args:
            complete: whether earlier loads had set all markers.
            runs: the run IDs of the servers at the start of the previous load.
        """
        self.complete, self._runs = complete, runs

    def setting(self, row: int) -> list[tuple[Any, ...]]:
        """Return the commands that set all markers to ``row``."""
        return [("SET", key, self.prefix + str(row).encode()) for key in self.keys]

    def fencing(self, words: Sequence[Any]) -> tuple[Any, ...]:
        """Return the command that makes the scripts of the previous loader do nothing.

        Args:
            words: fields and values to set in the description.
        """
        keys = (*self.keys, self._hash)
        return ("EVAL", FENCE, len(keys), *keys, self._generation, self.prefix, *words)

    def reached(self, row: int) -> array[int]:
        """Return for each marker the number of rows that ``level(row)`` stores in it."""
        return array("q", [max(row, ran) for ran in self._ran])

    def read(self) -> array[int]:
        """Read all markers: return for each marker how many rows have run.

        Raises:
            CheckpointError: a marker is missing, or is not a number of rows.
            TransportError: a server does not answer.
        """
        rows = array("q", bytes(8 * len(self.keys)))
        for link, numbers in self._by_link():
            with link.explained():
                values = link.replies([("GET", self.keys[number]) for number in numbers])
                found = [self._row(*each) for each in zip(numbers, values, strict=True)]
                self._check_missing(link, numbers, found)
            for number, row in zip(numbers, found, strict=True):
                rows[number] = row or 0
        self._ran = rows
        return rows

    def _check_missing(self, link: Link, numbers: list[int], found: list[int | None]) -> None:
        """Check that a server has all its markers, unless it has no rows of the load.

        A node that has lost its data, or its last second of writes, may have lost the initial
        markers. In that case, it has lost all rows of the load.
        """
        most = max((row or 0 for row in found), default=0)
        if None not in found or (most == 0 and self._may_lack(link)):
            return
        raise self._damaged(numbers[found.index(None)], "is missing or belongs to another load")

    def _may_lack(self, link: Link) -> bool:
        """Return whether a server may lack markers: they were not all set, or its data is lost."""
        if not self.complete:
            return True
        if self.links.topology is None:  # a single server would also lack the description
            return False
        self.complete = False  # so that the markers are set again
        replaced = bool(link.run and all(self._runs)) and link.run not in self._runs
        return replaced or link.call("DBSIZE") == 0

    def exist(self) -> bool:
        """Return whether a marker of any generation exists."""
        for link, numbers in self._by_link():
            with link.explained():
                if any(link.together(*[("EXISTS", self.keys[number]) for number in numbers])):
                    return True
        return False

    def _row(self, number: int, value: Any) -> int | None:
        """Return the number of rows in a marker's value.

        None if the marker is missing or has a different generation.
        """
        if isinstance(value, Exception):
            if str(value).startswith("WRONGTYPE"):
                raise self._damaged(number)
            raise value
        if value is None or not bytes_of("GET", value).startswith(self._generation):
            return None
        found = ROWS.fullmatch(value.removeprefix(self._generation))
        if found is None:
            raise self._damaged(number)
        return int(found[1])

    def _damaged(self, number: int, how: str = "is not a number of rows") -> CheckpointError:
        return CheckpointError(
            Message(
                f"the marker {self.keys[number].decode()} of checkpoint {self._name!r} {how}, so "
                "it is unknown which rows were loaded: check the data, and start over with ",
                Hint("checkpoint_clear", True),
            )
        )

    def level(self, row: int) -> bool:
        """Set all markers to ``row``; all rows before ``row`` must have run.

        A marker that was higher when the load started keeps its value. If a marker can't be set, a
        resumed load starts at an earlier row.

        Returns:
            Whether all markers were set.
        """
        values = [self.prefix + str(each).encode() for each in self.reached(row)]
        if self.fenced:
            words = ("EVAL", LEVEL, len(self.keys), *self.keys, self.prefix, *values)
            with suppress(OSError, redis_error()):
                return not self.links.home.call(*words)
            return False
        failed = 0
        for link, numbers in self._by_link():
            failed += 1
            with suppress(OSError, redis_error()):
                found = link.replies(
                    [("SET", self.keys[number], values[number]) for number in numbers]
                )
                failed -= not any(isinstance(reply, Exception) for reply in found)
        return not failed

    def delete(self) -> None:
        """Delete all markers.

        Raises:
            TransportError: a server can't be reached.
        """
        for link, numbers in self._by_link():
            with link.explained():
                link.together(*[("DEL", self.keys[number]) for number in numbers])

    def _by_link(self) -> Sequence[tuple[Link, list[int]]]:
        """Return the connection to each server, with the indexes of the server's markers."""
        topology = self.links.topology
        if topology is None:
            return [(self.links.home, [*range(len(self.keys))])]
        found: list[list[int]] = [[] for _ in topology.nodes]
        for slot, node in enumerate(topology.slots):
            if node < 0:
                raise TransportError(
                    f"can't read checkpoint {self._name!r}: no node serves slot {slot:,} (check "
                    "the cluster with redis-cli --cluster check)"
                )
            found[node].append(slot)
        return list(zip(self.links.all, found, strict=True))


def has_run(markers: Markers, ran: array[int], fields: dict[str, Any]) -> bool:
    """Return whether the row of a rejected command has run, and so is not loaded again.

    Args:
        markers: the markers of the checkpoint.
        ran: for each marker, how many rows have run.
        fields: the command's fields in the rejects file.

    Raises:
        LookupError, TypeError, ValueError: the fields don't describe a rejected command.
    """
    number = 0
    if markers.several:
        words = [argument_of(each) for each in fields["arguments"]]
        slot = Rules().slot(pack(*words))
        if slot == UNKNOWN and len(words) > 1:
            slot = Rules().slot(pack("GET", words[1]))
        number = max(slot, 0) % len(markers.keys)
    return int(fields["row"]) < ran[number]
