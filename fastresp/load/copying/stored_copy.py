"""The checkpoint of a copy: the remaining part of the scan, stored in the target."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
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
from ...transports.driver import Blocking, Steps
from ..load import Feature, Load
from .options import CopyOptions
from .server_entries import ServerEntries, Track

__all__ = ["CopyCheckpoint"]

# Seconds between writes of the progress; before each, the copy waits for all replies.
SAVE_S = 2.0


@dataclass
class CopyProgress:
    """The progress of a copy.

    Attributes:
        left: the remaining parts of the scan; None for the whole scan.
        rows: the number of keys that were copied so far.
        ended: when the copy ended; empty if it has not ended.
    """

    left: list[ScanPart] | None = None
    rows: int = 0
    ended: str = ""


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


class CopyCheckpoint(Feature):
    """Stores the progress of a copy every few seconds in a key of the target, to resume the copy.

    Args:
        entries: the source.
        options: the options of the copy; ``match``, ``type``, ``rename`` and the database are
            stored, and must be the same when the copy resumes.
    """

    def __init__(self, entries: ServerEntries, options: CopyOptions) -> None:
        assert options.progress_kept is not None
        self._checkpoint = options.progress_kept
        self._entries = entries
        self._server = as_server(options.server, Requirements(follow_redirects=True))
        self._timeout = options.timeout
        self._key = f"fastresp:{{{self._checkpoint.name}}}:copy"
        self._chosen: dict[str, Any] = {
            name: getattr(options, name) for name in ("match", "type", "rename")
        }
        self._chosen["db"] = entries.server.database  # the URL may select it
        self._track: Track
        self._before = 0  # number of keys that were copied before this copy resumed
        self._due = time.monotonic() + SAVE_S

    def _read(self) -> CopyProgress:
        """Return the stored progress; for a new copy, a CopyProgress without keys.

        Raises:
            CheckpointError: a checkpoint exists, and ``resume`` is not set; or it is of another
                copy.
        """
        text = None if self._checkpoint.clear else self._run("GET", self._key)
        if text is None:
            return CopyProgress()
        name = f"the checkpoint {self._checkpoint.name}"
        if not self._checkpoint.resumes:
            how = Hint("resume", True), ", or discard it with ", Hint("checkpoint_clear", True)
            raise CheckpointError(Message(f"{name} exists; resume it with ", *how))
        try:
            stored = json.loads(text)
            left = [_part_of(*each) for each in stored["left"]]
            found = CopyProgress(left, int(stored["rows"]), str(stored["ended"]))
            chosen = dict(stored["chosen"])
        except (ValueError, TypeError, KeyError) as error:
            message = f"{name} is damaged: {error!r} (delete the key {self._key})"
            raise CheckpointError(message) from error
        for option in self._chosen | chosen:
            if chosen.get(option) != self._chosen.get(option):
                text = f"{name} is of a copy with another "
                raise CheckpointError(Message(text, Hint(option), "; repeat it"))
        return found

    def _write(self, progress: CopyProgress) -> None:
        stored = {
            "chosen": self._chosen,
            "left": [_stored(each) for each in progress.left or ()],
            "rows": progress.rows,
            "ended": progress.ended,
        }
        self._run("SET", self._key, json.dumps(stored))

    def _run(self, *command: str) -> Any:
        [reply] = iter_replies([command], server=self._server, timeout=self._timeout)
        return reply

    def opening(self, load: Load) -> Steps[Report | None]:
        progress = yield Blocking(self._read)
        if progress.ended:
            return Report("socket", resumed_at=progress.rows, ended_before=progress.ended)
        self._track = self._entries.track(progress.left)
        self._before = progress.rows
        return None

    def sent(self, load: Load) -> Steps[None]:
        if time.monotonic() < self._due:
            return
        if (yield from load.flush()) and not load.report.rows_in_doubt:
            rows = load.chunks.writer.rows
            left = self._track.left_after(rows)
            if left is not None:
                yield Blocking(partial(self._write, CopyProgress(left, self._before + rows)))
        self._due = time.monotonic() + SAVE_S

    def finishing(self, load: Load) -> Steps[None]:
        if not (load.report.stopped or load.report.in_doubt):
            rows = self._before + load.chunks.writer.rows
            ended = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            yield Blocking(partial(self._write, CopyProgress([], rows, ended)))

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        load.report.resumed_at = self._before or load.report.resumed_at
