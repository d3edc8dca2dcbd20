"""A load with a checkpoint: resume at the stored row, and store progress."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ...encode.script import loading_of
from ...encode.template import Template
from ...encode.writer import CHUNK_BYTES
from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import Hint, Message
from ...outcome.report import Report
from ...resp.commands import commands_with
from ...resp.transactions import Batcher
from ...server.options import Options, Serialize
from ...server.preflight import OF_A_CONNECTION, Requirements, commands_without_items
from ...server.settings import as_server
from ...sources.chunks import Chunks
from ...sources.files.command_files import RejectsFile
from ...sources.files.resp import RespFile
from ...sources.several_tables import Pushed
from ...transports.base import Transport, add_report
from ...transports.driver import Blocking, Steps
from ...transports.filters import confirmation_of
from ...transports.resend import TakenOver
from ...transports.sending import PORTION_S, ResumePoint
from ..commands import command_names, is_idempotent
from ..load import Feature, Load
from .checkpoint import StoredCheckpoint
from .description import StoredProgress
from .identity import identity
from .links import address_of, check_name
from .markers import MERGED_ITEMS, RUN, has_run

__all__ = ["CheckpointFeature", "check_possible"]

# Approximate maximum commands, or bytes, of a transaction; it blocks the server for about 1 ms.
BATCH_COMMANDS = 2000
BATCH_BYTES = 1 << 17
# Maximum bytes of a chunk's commands together with their transactions.
BATCHED_BYTES = 2 * CHUNK_BYTES
# Seconds between writes of the row, and between renewals of the lease.
RECORDED_S = 1.0
RENEWED_S = 5.0
# With several markers or connections, the load is drained at this interval to store the row.
DRAINED_S = 20.0
# Commands that change or end the connection, or remove the marker with all other keys.
REFUSED = OF_A_CONNECTION | commands_with("flush") | {"QUIT", "RESET", "HELLO"}


class CheckpointFeature(Feature):
    """Claims, advances and releases the checkpoint of a load.

    A marker is a key that stores how many rows have run; see checkpoint/markers.py.

    Args:
        chunks: the source.
    """

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._options = chunks.options
        self._checkpoint: StoredCheckpoint | None = None
        self._transport: Transport | None = None
        self._batched = False
        self._done = StoredProgress()
        self._renewed = self._recorded = time.monotonic()
        self._row_run = 0  # number of leading rows whose commands are known to have run
        self._finished = False  # whether the checkpoint is complete, so that idle() stores nothing

    def opening(self, load: Load) -> Steps[Report | None]:
        """Become the owner of the checkpoint, and set the row to resume at.

        Return a report if there is nothing to load, because the whole source was loaded earlier.

        Raises:
            CheckpointError: the checkpoint can't be claimed; nothing was sent.
        """
        options, chunks = self._options, self._chunks
        if options.checkpoint is None:
            return None
        check_possible(chunks.data, chunks.template, options)
        server = as_server(options.server, Requirements(nodes=True))
        self._batched = not is_idempotent(chunks.template, options.nulls)
        found = identity(chunks.data, chunks.template, options)
        # The names of these fields are stored.
        found["way of sending"] = "transactions" if self._batched else "single commands"
        name = options.checkpoint.name
        checkpoint = StoredCheckpoint(server, name, options.timeout, self._failed)
        self._checkpoint = checkpoint
        self._done = done = yield Blocking(partial(self._claim, checkpoint, found))
        self._row_run = done.rows
        start = ResumePoint(
            done.rows, done.failed, done.unseen if self._batched else None, self._batched,
            self._stays(checkpoint),
        )  # fmt: skip
        load.resume_at(start, self._row_known)
        if done.ended:
            report = Report("socket")
            start.note_in(report)
            ended = datetime.fromtimestamp(int(done.ended), UTC)
            report.ended_before = f"{ended:%Y-%m-%d %H:%M} UTC"
            return report
        if self._batched:
            fenced = checkpoint.fenced
            merged = {"max_merged": MERGED_ITEMS} if fenced else {}
            batcher = yield from self._batcher(checkpoint)
            chunks.resume(done.rows, done.ran, batcher, **merged)
        else:
            chunks.resume(done.rows)
        return None

    def _claim(self, checkpoint: StoredCheckpoint, found: dict[str, str]) -> StoredProgress:
        options = self._options.checkpoint
        assert options is not None
        names = command_names(self._chunks.data, self._chunks.template) or ()
        checkpoint.open(self._options.connections, batched=self._batched, names=names)
        # The source of a data engine, such as Spark, which may repeat a task.
        attempts = isinstance(self._chunks.data, Pushed)
        return checkpoint.claim(found, options, attempts=attempts)

    def _batcher(self, checkpoint: StoredCheckpoint) -> Steps[Batcher]:
        """Return the Batcher, which wraps commands in transactions that advance the markers."""
        template, rate = self._chunks.template, self._options.rate
        ask = partial(checkpoint.lacking, commands_without_items(template))
        lacking: dict[bytes, int] = yield Blocking(ask)
        # A transaction is sent as a whole, so a rate limit also limits its number of commands.
        moment = None if rate is None else rate.commands_in(PORTION_S)
        return Batcher(
            checkpoint.markers.keys, checkpoint.markers.prefix, BATCH_COMMANDS, BATCH_BYTES,
            BATCHED_BYTES, lacking, [] if template is None else loading_of(template.scripts),
            moment, RUN if checkpoint.fenced else None, self._done.ran[:],
        )  # fmt: skip

    def _stays(self, checkpoint: StoredCheckpoint) -> Callable[[dict[str, Any]], bool] | None:
        """Return a function that selects the earlier rejects to keep; None for a first load.

        A reject is kept if its row is not loaded again.
        """
        if not self._done.resumed:
            return None
        if self._batched:
            return partial(has_run, checkpoint.markers, self._done.ran)
        rows = self._done.rows
        return lambda fields: int(fields["row"]) < rows

    def connected(self, load: Load) -> Steps[None]:
        """Store the CLIENT IDs of the load's connections in the server, before anything is sent.

        Raises:
            CheckpointError: another loader has taken over, or the cluster has changed.
        """
        self._transport = load.transport
        if self._checkpoint is not None:
            assert self._transport is not None and self._transport.lanes is not None
            numbers = getattr(self._transport, "numbers", [])
            lanes = self._transport.lanes.lanes
            of_slots = self._checkpoint.of_slots
            found = [
                (address_of(lane.server) if of_slots else "", number)
                for lane, number in zip(lanes, numbers, strict=True)
            ]
            yield Blocking(partial(self._checkpoint.register, found, self._done))

    def sent(self, load: Load) -> Steps[None]:
        yield from self.idle(load)
        if self._checkpoint is None or self._one_lane:
            return
        if time.monotonic() - self._recorded >= DRAINED_S and (yield from load.flush()):
            yield from self._record()

    def idle(self, load: Load) -> Steps[None]:
        """At intervals, renew the lease; if the load has one connection, also store the row."""
        if self._checkpoint is None or self._finished:
            return
        alone = self._one_lane
        if time.monotonic() - self._renewed < (RECORDED_S if alone else RENEWED_S):
            return
        self._renewed = time.monotonic()
        row = self._answered_row if alone else None
        yield Blocking(partial(self._checkpoint.renew, None if self._batched else row, row))

    def _record(self) -> Steps[None]:
        """Store the current row; every sent command must have been answered."""
        assert self._checkpoint is not None
        self._recorded = self._renewed = time.monotonic()
        rows = self._chunks.writer.rows
        if (yield Blocking(partial(self._checkpoint.renew, rows, rows))):
            self._chunks.reach(self._checkpoint.markers.reached(rows))
        self._row_run = rows

    def finishing(self, load: Load) -> Steps[None]:
        """Check and store that the whole source was loaded.

        Other features may wait or fail afterwards, so the checkpoint is not complete yet: the load
        can be resumed after its last row, for example to delete what ``mirror`` deletes.

        Raises:
            CheckpointError: the source has fewer rows than earlier loads have loaded, or another
                loader has taken over.
            TransportTimeout: rows of earlier loads are not durable.
        """
        if self._checkpoint is None:
            return
        if not self._is_whole(load.report):
            yield Blocking(partial(self._checkpoint.renew, self._repeatable_row, self._seen))
            return
        rows = self._chunks.writer.rows
        if rows < self._done.most:
            raise CheckpointError(
                f"the source has {rows:,} rows, but {self._done.most:,} were loaded before: it is "
                "another source (use another checkpoint name for it)"
            )
        confirmation = confirmation_of(self._options.durable)
        if confirmation is not None and self._batched and self._done.resumed:
            # The transactions of an earlier load have set markers before its rows were durable.
            yield Blocking(partial(self._checkpoint.confirm, rows, confirmation))
        # finish() sets several markers, which takes long in a cluster.
        row = None if self._checkpoint.markers.several else rows
        yield Blocking(partial(self._checkpoint.renew, row, rows))
        self._row_run = rows

    def finished(self, load: Load) -> Steps[None]:
        """Mark the checkpoint as complete, if the whole source was loaded.

        Raises:
            CheckpointError: another loader has taken over.
        """
        if self._checkpoint is not None and self._is_whole(load.report):
            self._finished = True
            rows = self._chunks.writer.rows
            yield Blocking(partial(self._checkpoint.finish, load.report, rows))

    @staticmethod
    def _is_whole(report: Report) -> bool:
        """Return whether all commands of the source were answered."""
        return not (report.stopped or report.in_doubt or report.unsent)

    def ended(self, load: Load) -> Steps[None]:
        """Release the checkpoint.

        Raises:
            CheckpointError: a script found that another loader has taken over.
        """
        if self._checkpoint is None:
            return
        try:
            if not isinstance(load.error, GeneratorExit):  # after it, nothing can be awaited
                yield Blocking(self._close)
        finally:
            self._close()
        if isinstance(load.error, TransportError):
            self._explain(self._checkpoint, load.error)

    def _close(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.close(self._repeatable_row, self._seen)

    def _explain(self, checkpoint: StoredCheckpoint, error: TransportError) -> None:
        """Raise CheckpointError if ``error`` means that another loader has taken over."""
        if self._transport is None or self._transport.lanes is None:
            return
        faults = (lane.window.fault for lane in self._transport.lanes.lanes)
        if any(isinstance(fault, TakenOver) for fault in faults):
            explained = checkpoint.taken_over()
            add_report(explained, self._transport.report, str(error))
            raise explained from error

    def _failed(self) -> int:
        """Return the number of failed commands of all loads with the checkpoint."""
        now = 0 if self._transport is None else self._transport.report.failed
        return self._done.failed + now

    def _row_known(self) -> int | None:
        """Return how many leading rows have certainly run; None if unknown."""
        if self._checkpoint is None or self._transport is None:
            return self._row_run if self._done.ended else None
        return self._answered_row if self._one_lane else self._row_run

    @property
    def _one_lane(self) -> bool:
        """Whether the load has one marker and one connection, so replies are in source order."""
        assert self._checkpoint is not None
        return not self._checkpoint.markers.several and self._options.connections == 1

    @property
    def _seen(self) -> int | None:
        """How many leading rows were answered when the load ended; None if unknown."""
        if self._transport is None or self._transport.lanes is None:
            return None
        if self._one_lane:
            return self._answered_row
        return None if self._transport.report.in_doubt else self._chunks.writer.rows

    @property
    def _repeatable_row(self) -> int | None:
        """The row to store in the marker at the end; None to leave the marker unchanged."""
        if self._batched or self._transport is None or self._transport.lanes is None:
            return None
        return self._answered_row if self._one_lane else None

    @property
    def _answered_row(self) -> int:
        """The number of leading rows whose commands were all answered."""
        assert self._transport is not None and self._transport.lanes is not None
        [lane] = self._transport.lanes.lanes
        # For a stopped load, answered_row() also counts answered commands that are not durable.
        if not (self._transport.live_report.stopped and self._options.confirms):
            self._row_run = lane.window.answered_row(self._done.rows)
        return self._row_run


def check_possible(data: Any, template: Template | None, options: Options) -> None:
    """Check that a load can have a checkpoint, without asking a server.

    Raises:
        CheckpointError: the source, the template or an option can't be used with a checkpoint.
    """
    assert options.checkpoint is not None
    check_name(options.checkpoint.name, "checkpoint")
    source_id = options.checkpoint.source_id
    if source_id is not None and not (isinstance(source_id, str) and _is_text(source_id)):
        words = f" must be a non-empty text, not {source_id!r}"
        raise CheckpointError(Message(Hint("source_id"), words))
    refused: tuple[str | Hint, ...] = ()
    if isinstance(data, AsyncIterable):
        refused = ("asynchronous sources",)
    elif template is None or isinstance(data, RespFile | RejectsFile):
        refused = ("loads of whole commands; it needs a template",)
    elif names := _refused_names(command_names(data, template)):
        refused = (names,)
    elif isinstance(options.mode, Serialize):
        words = "serialised loads; if one ends early, repeat it with "
        refused = words, Hint("exists", "replace")
    elif options.replaces and not is_idempotent(template, options.nulls):
        refused = ("exists='replace' and commands that are not idempotent",)
    elif options.retry not in (None, "never"):
        refused = Hint("retry"), "; resume the load instead"
    if refused:
        raise CheckpointError(Message(Hint("checkpoint"), " can't be used with ", *refused))


def _is_text(value: str) -> bool:
    """Return whether a string is not empty and can be encoded as UTF-8."""
    return bool(value) and not any(0xD800 <= ord(character) < 0xE000 for character in value)


def _refused_names(names: Sequence[str] | None) -> str:
    """Name the commands that can't be used with a checkpoint; empty if all can."""
    if names is None:
        return "command names that depend on the rows; begin the template with the name"
    if "MULTI" in names:
        return "MULTI and EXEC; leave them out, since it creates the transactions"
    found = ", ".join(sorted(REFUSED.intersection(names)))
    return f"commands that change the connection or remove all keys: {found}" if found else ""
