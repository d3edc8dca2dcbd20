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
from ...server.options import Checkpoint
from ...server.preflight import Requirements
from ...server.settings import Server, ServerLike, as_server
from ...transports.driver import Blocking, Steps
from ..load import Feature, Load
from .server_entries import ServerEntries

__all__ = ["CopyCheckpoint", "StoredCopy"]

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


class StoredCopy:
    """Stores the progress of a copy in a key of the target.

    Args:
        checkpoint: the options of the checkpoint.
        server: the target.
        chosen: the options ``match``, ``type``, ``rename`` and ``db``, by name.
        timeout: seconds to wait for each reply.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        server: ServerLike | Server,
        chosen: dict[str, Any],
        timeout: float | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._server = as_server(server, Requirements(follow_redirects=True))
        self._chosen = chosen
        self._timeout = timeout
        self._key = f"fastresp:{{{checkpoint.name}}}:copy"

    def read(self) -> CopyProgress:
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
            raise CheckpointError(
                f"{name} is damaged: {error!r} (delete the key {self._key})"
            ) from error
        if chosen != self._chosen:
            different = [each for each in self._chosen if chosen.get(each) != self._chosen[each]]
            raise CheckpointError(
                Message(f"{name} is of a copy with another ", Hint(different[0]), "; repeat it")
                if different
                else f"{name} is of another copy"
            )
        return found

    def write(self, progress: CopyProgress) -> None:
        """Store the progress."""
        stored = {
            "chosen": self._chosen,
            "left": [_stored(each) for each in progress.left or ()],
            "rows": progress.rows,
            "ended": progress.ended,
        }
        self._run("SET", self._key, json.dumps(stored))

    def end(self, rows: int) -> None:
        """Store that the copy has ended."""
        ended = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        self.write(CopyProgress([], rows, ended))

    def _run(self, *command: str) -> Any:
        [reply] = iter_replies([command], server=self._server, timeout=self._timeout)
        return reply


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
    """Stores the progress of a copy every few seconds, and resumes a copy from there."""

    def __init__(self, entries: ServerEntries, stored: StoredCopy) -> None:
        self._entries = entries
        self._stored = stored
        self._before = 0  # number of keys that were copied before this copy resumed
        self._due = time.monotonic() + SAVE_S

    def opening(self, load: Load) -> Steps[Report | None]:
        progress = yield Blocking(self._stored.read)
        if progress.ended:
            return Report("socket", resumed_at=progress.rows, ended_before=progress.ended)
        self._entries.track(progress.left)
        self._before = progress.rows
        return None

    def sent(self, load: Load) -> Steps[None]:
        if time.monotonic() < self._due:
            return
        if (yield from load.flush()) and not load.report.rows_in_doubt:
            rows = load.chunks.writer.rows
            left = self._entries.left_after(rows)
            if left is not None:
                progress = CopyProgress(left, self._before + rows)
                yield Blocking(partial(self._stored.write, progress))
        self._due = time.monotonic() + SAVE_S

    def finishing(self, load: Load) -> Steps[None]:
        if not (load.report.stopped or load.report.in_doubt):
            rows = self._before + load.chunks.writer.rows
            yield Blocking(partial(self._stored.end, rows))

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        load.report.resumed_at = self._before or load.report.resumed_at
