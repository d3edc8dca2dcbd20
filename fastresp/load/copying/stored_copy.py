"""The checkpoints of copies: what remains of the scan, or the offset, stored in the target."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ...outcome.errors import CheckpointError
from ...outcome.messages import Hint, Message
from ...outcome.report import Report
from ...replies.iter_replies import iter_replies
from ...replies.scan import ScanPart
from ...server.preflight import Requirements
from ...server.settings import as_server
from ...sources.replica_stream import Place
from ...transports.driver import Blocking, Steps
from ..load import Feature, Load
from .options import CopyOptions
from .server_entries import ServerEntries, Track

__all__ = ["CopyCheckpoint", "StoredFollowing"]

# The value of a checkpoint until the snapshot is copied; after the target has refused a command;
# and otherwise: replication ID, offset, database of the next command, and copied database.
BEGUN = b"snapshot"
DIVERGED = b"diverged"
STORED = re.compile(rb"([0-9a-zA-Z]{1,64}) (\d{1,18}) (-1|\d{1,9}) (\d{1,9})")
# Seconds between writes of the progress; before each, the copy waits for all replies.
SAVE_S = 2.0


def _stored(part: ScanPart) -> list[Any]:
    """Return a ScanPart for JSON; its slots become ranges: pairs of the first and last slot."""
    ranges = None if part.slots is None else _ranges(sorted(part.slots))
    return [part.run_id, ranges, part.cursor.decode()]


def _ranges(slots: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for slot in slots:
        if found and found[-1][1] == slot - 1:
            found[-1][1] = slot
        else:
            found.append([slot, slot])
    return found


def _part_of(run_id: str, ranges: list[list[int]] | None, cursor: str) -> ScanPart:
    slots = None
    if ranges is not None:
        slots = frozenset(slot for first, last in ranges for slot in range(first, last + 1))
    if not cursor.isdecimal():
        raise ValueError(f"invalid cursor {cursor!r}")
    return ScanPart(str(run_id), slots, cursor.encode())


class StoredState:
    """The state of a copy, stored in a key of the target.

    Args:
        options: the options of the copy.
        kind: the last part of the key's name.
    """

    def __init__(self, options: CopyOptions, kind: str) -> None:
        assert options.progress_kept is not None
        self._checkpoint = options.progress_kept
        self._server = as_server(options.server, Requirements(follow_redirects=True))
        self._timeout = options.timeout
        self._key = f"fastresp:{{{self._checkpoint.name}}}:{kind}"
        self._name = f"the checkpoint {self._checkpoint.name}"

    def _read(self) -> bytes | None:
        """Return the stored state; None for a new copy."""
        text = None if self._checkpoint.clear else self._run("GET", self._key)
        if text is not None and not self._checkpoint.resumes:
            how = Hint("resume", True), ", or discard it with ", Hint("checkpoint_clear", True)
            raise CheckpointError(Message(f"{self._name} exists; resume it with ", *how))
        return text

    def _write(self, text: bytes) -> None:
        self._run("SET", self._key, text)

    def _run(self, *command: str | bytes) -> Any:
        [reply] = iter_replies([command], server=self._server, timeout=self._timeout)
        return reply


class CopyCheckpoint(StoredState, Feature):
    """Stores the progress of a copy every few seconds in a key of the target, to resume the copy.

    Args:
        entries: the source.
        options: the options of the copy; ``match``, ``type``, ``rename`` and the database are
            stored, and must be the same when the copy resumes.
    """

    def __init__(self, entries: ServerEntries, options: CopyOptions) -> None:
        super().__init__(options, "copy")
        self._entries = entries
        self._chosen: dict[str, Any] = {
            name: getattr(options, name) for name in ("match", "type", "rename")
        }
        self._chosen["db"] = entries.server.database  # the URL may select it
        self._track: Track
        self._before = 0  # number of keys that were copied before this copy resumed
        self._due = time.monotonic() + SAVE_S

    def _progress(self) -> tuple[list[ScanPart] | None, int, str]:
        """Return the stored progress: (left, rows, ended).

        ``left`` are the remaining parts of the scan, or None for the whole scan; ``rows`` is the
        number of copied keys; and ``ended`` is when the copy ended, or empty.

        Raises:
            CheckpointError: a checkpoint exists, and ``resume`` is not set; or it is of another
                copy.
        """
        text = self._read()
        if text is None:
            return None, 0, ""
        try:
            stored = json.loads(text)
            left = [_part_of(*each) for each in stored["left"]]
            found = left, int(stored["rows"]), str(stored["ended"])
            chosen = dict(stored["chosen"])
        except (ValueError, TypeError, KeyError) as error:
            message = f"{self._name} is damaged: {error!r} (delete the key {self._key})"
            raise CheckpointError(message) from error
        for option in self._chosen | chosen:
            if chosen.get(option) != self._chosen.get(option):
                what = f"{self._name} is of a copy with another "
                raise CheckpointError(Message(what, Hint(option), "; repeat it"))
        return found

    def _store(self, left: list[ScanPart], rows: int, ended: str = "") -> None:
        parts = list(map(_stored, left))
        stored = {"chosen": self._chosen, "left": parts, "rows": rows, "ended": ended}
        self._write(json.dumps(stored).encode())

    def opening(self, load: Load) -> Steps[Report | None]:
        left, rows, ended = yield Blocking(self._progress)
        if ended:
            return Report("socket", resumed_at=rows, ended_before=ended)
        self._track = self._entries.track(left)
        self._before = rows
        return None

    def sent(self, load: Load) -> Steps[None]:
        if time.monotonic() < self._due:
            return
        if (yield from load.flush()) and not load.report.rows_in_doubt:
            rows = load.chunks.writer.rows
            left = self._track.left_after(rows)
            if left is not None:
                yield Blocking(partial(self._store, left, self._before + rows))
        self._due = time.monotonic() + SAVE_S

    def finishing(self, load: Load) -> Steps[None]:
        if not (load.report.stopped or load.report.in_doubt):
            rows = self._before + load.chunks.writer.rows
            ended = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            yield Blocking(partial(self._store, [], rows, ended))

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        load.report.resumed_at = self._before or load.report.resumed_at


class StoredFollowing(StoredState):
    """Stores the Place up to which a copy has followed its source, in a key of the target.

    The Place is written in one transaction with the commands before it, so each command is applied
    exactly once, whatever fails.

    Args:
        options: the options of the copy.
        copied: the copied database of the source.

    Attributes:
        database: the database of the source's next command; -1 before the first SELECT.
    """

    def __init__(self, options: CopyOptions, copied: int) -> None:
        super().__init__(options, "follow")
        self.database = -1
        self._copied = copied

    def begin(self) -> Place | None:
        """Return the Place to resume at; for a new copy, store BEGUN, and return None.

        Raises:
            CheckpointError: a checkpoint exists, and ``resume`` is not set; or the checkpoint can't
                be resumed: it is damaged, it is of another database, its snapshot was not copied
                completely, or the target has refused a command.
        """
        text = self._read()
        if text is None:
            self._write(BEGUN)
            return None
        name, clear = self._name, Hint("checkpoint_clear", True)
        if text == DIVERGED:
            reason = ": the target refused a command, so its keys differ; begin again with "
            raise CheckpointError(Message(name, reason, clear))
        if text == BEGUN:
            reason = ": the snapshot was not copied completely, so the target may have keys that "
            advice = "the source has deleted meanwhile; empty the target, and begin again with "
            raise CheckpointError(Message(name, reason, advice, clear))
        found = STORED.fullmatch(text)
        if found is None:
            raise CheckpointError(f"{name} is damaged: delete the key {self._key}")
        if int(found[4]) != self._copied:
            reason = f" is of a copy of database {int(found[4])}; repeat it with "
            raise CheckpointError(Message(name, reason, Hint("db", int(found[4]))))
        self.database = int(found[3])
        return Place(found[1].decode(), int(found[2]))

    def diverge(self) -> None:
        """Store that the target differs from the source, so that no copy can resume."""
        self._write(DIVERGED)

    def transaction(
        self, commands: list[list[bytes]], place: Place, database: int
    ) -> list[list[bytes]]:
        """Return a transaction of the commands and of a SET that stores the Place after them."""
        reached = place.replication_id.encode(), place.offset, database, self._copied
        text = b"%s %d %d %d" % reached
        single = (each for each in commands if each not in ([b"MULTI"], [b"EXEC"]))
        return [[b"MULTI"], *single, [b"SET", self._key.encode(), text], [b"EXEC"]]
