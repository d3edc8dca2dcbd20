"""The checkpoint of a load: claim it, store the load's progress in it, and complete it."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any

from ...outcome.errors import CheckpointError, TransportError, TransportTimeout
from ...outcome.report import Report
from ...server.options import Checkpoint
from ...transports.filters import Confirmation
from .description import Description, StoredProgress
from .identity import check_same
from .links import possible_later, until_freed
from .markers import FENCE_BYTES
from .previous_loader import AtWork, check_alone, close_all, remove_truncated_transactions

__all__ = ["StoredCheckpoint"]


class StoredCheckpoint(Description):
    """The checkpoint of a load; one loader at a time is its owner."""

    def claim(
        self, identity: dict[str, str], options: Checkpoint, *, attempts: bool = False
    ) -> StoredProgress:
        """Become the owner of the checkpoint, and return its progress.

        Before the markers are read, the previous loader's connections are closed, or its scripts
        are fenced off. So none of the previous loader's commands can run afterwards.

        Args:
            identity: properties of the source and options, which must equal the stored properties.
            options: whether to resume, take over or delete an existing checkpoint; otherwise, its
                existence is an error.
            attempts: whether this load and earlier loads are attempts at one task. If so, a
                previous loader with an expired lease is replaced even if it has open connections,
                and a load that has ended is resumed, because its source may have been incomplete.

        Raises:
            AtWork: another loader is active.
            CheckpointError: the checkpoint exists and is not to be resumed, or it belongs to
                another load.
            TransportError: the server can't be reached.
        """
        identity = identity | {"kind of markers": self.markers.kind}
        with self._home.explained():
            self._home.call("WATCH", self._hash)
            found = self._state()
            if not found:
                if not self.markers.exist():
                    self._enter(identity, {}, fresh=True)
                    return StoredProgress(self._nothing)
                found = self._state()  # another loader has started meanwhile
            if options.clear:
                self._replace(identity, found, options, by_lease=attempts)
                return StoredProgress(self._nothing)
            done = self._done(found)
            if not options.resumes:
                if not done.ended:
                    done.ran = self.markers.read()
                raise CheckpointError(self._exists(done))
            check_same(self.name, identity, found)
            if done.ended:
                # The server may have lost its last seconds of writes since the load ended.
                done.ran = self.markers.read()
                if min(done.ran) >= done.total and not attempts:
                    self._home.call("UNWATCH")
                    return done
                done.ended = ""
            self._replace(identity, found, options, by_lease=attempts)
            done.ran = self.markers.read()
            return done

    def lacking(self, commands: Sequence[tuple[bytes, ...]]) -> dict[bytes, int]:
        """Find the commands that have too few arguments, without running them.

        Returns:
            For each refused command name, in capitals: the largest number of arguments, including
            the name, that the server refused as too few.
        """
        found: dict[bytes, int] = {}
        for words in commands:
            with self._home.explained():
                replies = self._home.replies([("MULTI",), words, ("DISCARD",)])
            if "wrong number of arguments" in str(replies[1]):
                name = words[0].upper()
                found[name] = max(len(words), found.get(name, 0))
        return found

    def _replace(
        self, identity: dict[str, str], found: dict[str, str], options: Checkpoint, by_lease: bool
    ) -> None:
        """Replace the previous loader as the owner.

        The previous loader's connections are closed before this loader is stored as the owner, so
        later loaders need not know these connections. If the previous loader registers a new
        connection between these two steps, the caller's WATCH makes our transaction fail. With
        script fencing, the previous loader's connections may stay open: its scripts do nothing, and
        it writes to the description only if it is still the owner.

        Raises:
            AtWork: another loader is active, or the description has changed since WATCH.
            CheckpointError: a connection or an append-only file blocks the takeover: see
                ``close_all()`` and ``remove_truncated_transactions()``.
            TransportError: a server can't be reached.
        """
        if not options.take_over:
            check_alone(self._links, self.name, found, self._now, by_lease=by_lease)
        if not (self.fenced and found.get("fenced")):
            close_all(self._links, found.get("clients", ""), self._timeout)
        remove_truncated_transactions(self._links, found.get("clients", ""))
        self._enter(identity, found, fresh=options.clear)

    def _enter(self, identity: dict[str, str], found: Mapping[str, str], *, fresh: bool) -> None:
        """Store this loader as the owner, with the properties of its source.

        Raises:
            AtWork: the hash has changed since WATCH.
        """
        generation = token_hex(4) if fresh else found.get("generation", "")
        fence = token_hex(FENCE_BYTES) if self.fenced else "" if fresh else found.get("fence", "")
        fields: dict[str, Any] = {
            "owner": self._token, "loader": f"{socket.gethostname()}, process {os.getpid()}",
            "clients": self._links.clients(()), "generation": generation, "lease": self._lease(),
            "ended": "", "fence": fence, "fenced": "by scripts" if self.fenced else "",
        }  # fmt: skip
        if fresh:
            self.markers.expect(not self.of_slots, ())
            fields["markers"] = "" if self.of_slots else "complete"
        commands = [self._hset(**fields | identity)]
        self.markers.begin(generation, fence)
        if fresh:
            # Delete the markers for every number of connections. Otherwise, scripts of a previous
            # loader with more or fewer connections could find the values that they expect.
            commands = [("DEL", self._hash, *self.markers.of_all), *commands]
            if not self.of_slots:
                commands += self.markers.setting(0)
        elif self.fenced:
            commands = [self.markers.fencing(commands[0][2:])]
        if not self._transaction(*commands):
            raise AtWork(
                f"another loader has just started or ended checkpoint {self.name!r}; check whether "
                "it is still running, then resume"
            )
        self._unused = fresh

    def register(self, connections: Sequence[tuple[str, int]], done: StoredProgress) -> None:
        """Store the IDs of the load's and the checkpoint's connections, before rows are sent.

        Args:
            connections: pairs of a node's address (empty for a single server) and a CLIENT ID.
            done: progress of earlier loads; its ``seen_now`` and ``unseen`` are stored.

        Raises:
            CheckpointError: another loader has taken over, or the cluster has changed.
        """
        self._connections = connections
        self._links.check()
        self._links.check_places(connections)
        words: dict[str, Any] = {"seen": done.seen_now}
        if done.unseen is not None:
            words["unknown"] = json.dumps(done.unseen)
        with self._home.explained():
            self._write_clients(**words)
            self._unused = False
            if not self.markers.complete:
                self._complete_markers()

    def _complete_markers(self) -> None:
        """Set all markers before rows are sent, so that the removal of a marker is noticed."""
        if not self.markers.level(0):
            raise self._unset_markers()
        if not self._as_owner(self._hset(markers="complete")):
            raise self.taken_over()
        self.markers.expect(True, self._runs)

    def _unset_markers(self) -> CheckpointError:
        return possible_later(
            f"not all markers of checkpoint {self.name!r} could be set; resume the load"
        )

    def _write_clients(self, **words: Any) -> None:
        """Store the connections and other fields of the description."""
        clients = self._links.clients(self._connections)
        if not self._as_owner(self._hset(clients=clients, **words)):
            raise self.taken_over()

    def renew(self, row: int | None, seen: int | None = None) -> bool:
        """Renew the lease, and store the progress.

        Args:
            row: the number of rows to store in the markers; None to leave the markers unchanged.
            seen: number of leading rows whose replies were all received; None if unknown.

        Returns:
            Whether everything was stored; False if the server can't be reached.

        Raises:
            CheckpointError: another loader has taken over, a server was restarted, or with script
                fencing, a marker could not be set.
        """
        with suppress(TransportError), self._home.explained():
            if self._home.lost:  # a reply was late
                self._links.check()
                self._write_clients()
            commands = [self._hset(lease=self._lease(), **self._seen(seen))]
            if row is not None and not self.markers.several:
                commands += self.markers.setting(row)
            if not self._as_owner(*commands):
                raise self.taken_over()
            if row is None or not self.markers.several or self.markers.level(row):
                return True
            if self.fenced:  # the values of the markers are now unknown
                raise self._unset_markers()
            self._look_again()  # the next call may set all markers
            self._write_clients()
        return False

    def _seen(self, seen: int | None) -> dict[str, int]:
        """Return the fields that store the number of answered rows, if it is known."""
        return {} if seen is None else {"seen": seen, "failed": self.failed()}

    def confirm(self, rows: int, confirmation: Confirmation) -> None:
        """Wait until the rows of earlier loads are durable.

        Args:
            rows: number of source rows; their commands have all run.
            confirmation: the command that confirms the rows.

        Raises:
            CheckpointError: another loader has taken over.
            TransportTimeout: the rows are not durable within the timeout.
            TransportError: a server can't be reached, or can't confirm writes.
        """
        until = time.monotonic() + (self._timeout or math.inf)
        # WAIT covers all writes before the last write of its own connection, so write first.
        if self.markers.several:
            self.markers.level(rows)
        else:
            with self._home.explained():
                if not self._as_owner(*self.markers.setting(rows)):
                    raise self.taken_over()
        for link in self._links.all:
            with link.explained():
                while link.confirmed(confirmation) < confirmation.least:
                    if time.monotonic() > until:
                        raise TransportTimeout(
                            f"rows of earlier loads are not durable after {self._timeout:g} s: "
                            f"{confirmation.likely}the server at {link.server} is slow; resume "
                            "the load later"
                        )

    def finish(self, report: Report, rows: int) -> None:
        """Mark the checkpoint as complete, and store the totals.

        Raises:
            CheckpointError: another loader has taken over, or a server was restarted.
            TransportError: a server can't be reached.
        """
        if self.of_slots:
            self._look_again()
        self._links.check()  # a restarted server may have lost rows
        with self._home.explained():
            # Lets a loader that takes over now close our new connections.
            self._write_clients()
            if self.markers.several:
                if not self._is_owner():
                    raise self.taken_over()
                if not self.markers.level(rows):
                    raise self._unset_markers()
            # Keep the run IDs, so that a load that resumes after lost rows can see which server has
            # restarted. CLIENT IDs are no longer needed.
            clients = json.dumps([(link.address, link.run, ()) for link in self._links.all])
            failed = self.failed()
            totals = json.dumps({"rows": rows, "commands": report.commands, "failed": failed})
            commands = [
                self._hset(
                    ended=self._now(), totals=totals, clients=clients, lease=0, failed=failed,
                    seen=rows,
                )
            ]  # fmt: skip
            if not self.markers.several:
                commands += self.markers.setting(rows)
            if not self._as_owner(*commands):
                raise self.taken_over()

    def close(self, row: int | None = None, seen: int | None = None) -> None:
        """Release the lease if this loader is the owner, and close the connections.

        Delete a new checkpoint if no rows were sent, for example because of an error in the
        template.

        Args:
            row, seen: as for ``renew()``. A resumed load counts the errors of rows after ``seen``
                again.
        """
        if self._opened is not None:
            commands = [self._hset(lease=0, **self._seen(seen))]
            if self._unused:
                left = () if self.of_slots else self.markers.keys
                commands = [("DEL", self._hash, *left)]
            elif row is not None and not self.markers.several:
                commands += self.markers.setting(row)
            with suppress(Exception):
                until_freed(partial(self._as_owner, *commands))
            self._links.close()
            self._opened = None

    def ran(self) -> array[int]:
        """Return for each marker how many rows have run; 0 if the checkpoint does not exist.

        Raises:
            CheckpointError: a marker is missing.
            TransportError: the server can't be reached.
        """
        with self._home.explained():
            found = self._state()
            if not found:
                return self._nothing
            self._done(found)
            return self.markers.read()

    def delete(self) -> None:
        """Delete the checkpoint, and close the connections."""
        try:
            with self._home.explained():
                self._home.call("DEL", self._hash)
            self.markers.delete()
        finally:
            self._links.close()
            self._opened = None
