"""A load: source, encoder, transport, and the features that observe or delay it.

Features (the checkpoint, search indexes, progress, metrics, spans) implement hooks. A ``Load``
calls the hooks, and knows no feature by name.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ..encode.row_key import RowKeys
from ..encode.script import resending_of
from ..outcome.report import Report
from ..replies.locating import locating, place_of
from ..resp.buffer import Chunk
from ..server.forks import is_own, on_fork
from ..server.options import FSYNC, SNAPSHOT, Merge, Options, Replicate, Serialize
from ..server.preflight import (
    RESTORE,
    Requirements,
    commands_over_any_keys,
    commands_that_replace,
)
from ..server.settings import as_server
from ..sources.chunks import Chunks
from ..sources.several_tables import Pushed
from ..sources.source import known_rows
from ..transports.base import Transport, add_report
from ..transports.connection import LostConnection
from ..transports.driver import (
    Blocking,
    ChunkSender,
    Pull,
    Step,
    Steps,
    next_chunk,
    nothing,
    open_source,
    run,
    wrap,
)
from ..transports.error_policy import ErrorPolicy
from ..transports.sending import ResumePoint
from .commands import check_connection_state, check_several_connections, command_names
from .paused_settings import SETTINGS_OF_WARNINGS

__all__ = ["Choose", "Feature", "Load"]

# Returns the transport of a load, from the arguments of SocketTransport; see choose().
Choose: TypeAlias = Callable[..., Transport]


class Feature:
    """Observes, delays or stops a load. Each hook does nothing by default.

    Hooks that return ``Steps`` are cores, and may wait. An exception in a hook ends the load.
    ``finishing()``, ``finished()`` and ``ended()`` are called in reverse order of the features.

    Attributes:
        every_s: minimum seconds between calls of ``look()``; by default, ``look()`` is never
            called. redis-cli, or a source that blocks, may delay the calls.
    """

    every_s = float("inf")

    def begin(self, load: Load) -> None:
        """Start, before the source is opened."""

    def opening(self, load: Load) -> Steps[Report | None]:
        """Prepare before the source is opened; return a report if there is nothing to load."""
        yield from ()
        return None

    def connected(self, load: Load) -> Steps[None]:
        """Prepare after the connections were opened, and before anything is sent."""
        yield from ()

    def admits(self) -> bool:
        """Return whether commands may be sent now, while an async source pauses."""
        return True

    def sending(self, load: Load, chunk: Chunk) -> Steps[None]:
        """Delay a chunk, if necessary."""
        yield from ()

    def sent(self, load: Load) -> Steps[None]:
        """React to a chunk that was passed to the transport."""
        yield from self.idle(load)

    def idle(self, load: Load) -> Steps[None]:
        """Do periodic work: after each chunk, and while the load waits for a source or a retry."""
        yield from ()

    def finishing(self, load: Load) -> Steps[None]:
        """Finish after the connections are closed.

        If the load was stopped, commands may be in doubt or unsent.
        """
        yield from ()

    def finished(self, load: Load) -> Steps[None]:
        """Store that the load has finished, after ``finishing()`` of all features."""
        yield from ()

    def counted(self, report: Report) -> Report:
        """Return the live report, or a copy with the counts of the feature's own work added."""
        return report

    def look(self, load: Load) -> Callable[[], object] | None:
        """Observe the load; return a callable for work that may block, or None."""

    def ended(self, load: Load) -> Steps[None]:
        """Release everything. ``load.error`` is the exception that ended the load, or None."""
        yield from ()


class Load:
    """One load, from opening the source to the final report.

    Args:
        chunks: the source; closed at the end.
        choose: returns the transport.
        features: their hooks are called in this order, except those at the end; see ``Feature``.

    Attributes:
        transport: the transport; None before it is chosen.
        error: the exception that ended the load; set only while features handle the end.
        over: whether the load has ended.
        start: where the load starts; see ``resume_at()``.
    """

    def __init__(self, chunks: Chunks, choose: Choose, features: Sequence[Feature] = ()) -> None:
        self.chunks = chunks
        self.options: Options = chunks.options
        self.transport: Transport | None = None
        self.error: BaseException | None = None
        self.over = False
        self.start: ResumePoint | None = None
        self.row: Callable[[], int | None] = lambda: None
        self._choose = choose
        self._features = features
        self._begun: list[tuple[Feature, float]] = []  # each with the time of its last look()
        # The exception of the source, or of a feature's idle() while the source pauses.
        self._failure: BaseException | None = None
        self._report: Report | None = None
        on_fork(self)

    # For features.

    @property
    def report(self) -> Report:
        """The live report; at the end, the final report."""
        if self._report is None and self.transport is not None:
            return self.transport.report
        return self._report or Report("")

    @property
    def progress(self) -> Report:
        """The live report, plus the counts of the features' own work; see ``counted()``."""
        report = self.report
        for feature in self._features:
            report = feature.counted(report)
        return report

    def resume_at(self, start: ResumePoint, row: Callable[[], int | None]) -> None:
        """Set where the load starts, and ``row()``, which returns how many leading rows have run.

        Call this in ``opening()``. ``row()`` returns None while that number is unknown.
        """
        self.start, self.row = start, row

    def idle(self) -> Steps[None]:
        """Call ``idle()`` of each feature."""
        for feature in self._features:
            yield from feature.idle(self)

    def drain(self) -> Steps[None]:
        """Wait until every sent command is answered."""
        assert self.transport is not None
        yield from self._resend_refused(end=True)
        yield from self.transport.finishing()

    def flush(self) -> Steps[bool]:
        """Send all rows that were read, and wait until every command is answered.

        Return False if the load was stopped.
        """
        assert self.transport is not None
        for chunk in self.chunks.drain():
            yield from self.transport.writing(chunk)
        yield from self.drain()
        return not (self.transport.live_report.stopped or self.chunks.refused)

    # The core; see ``driver``.

    def core(self) -> Steps[Report]:
        """Run the load: yield each operation that the driver must run or wait for."""
        observed = any(feature.every_s < float("inf") for feature in self._features)
        return wrap(self._run(), self._end, self._waiting if observed else None)

    def _run(self) -> Steps[Report]:
        options, data = self.options, self.chunks.data
        keys = RowKeys(self.chunks.template)
        policy = ErrorPolicy(
            options.on_error, options.max_errors, options.rejects, place_of(data), keys
        )
        with closing(self.chunks):
            for feature in self._features:
                feature.begin(self)
                self._begun.append((feature, time.monotonic()))
            finished = yield from self._open_source()
            if finished is not None:
                return policy.checked(finished)
            if self.start is not None:
                policy.resume(self.start.stays)
            with policy:
                transport = self.transport = self._transport(policy)
                yield from self._connect(transport)
                try:
                    yield from self._send(transport)
                    yield from transport.closing()
                    self._count_skipped(transport.report)
                    yield from self._locate()
                    for feature in reversed(self._features):
                        yield from feature.finishing(self)
                    for feature in reversed(self._features):
                        yield from feature.finished(self)
                except BaseException as error:
                    yield from transport.ending_after(
                        error, self.chunks.unsent, self._resend_rest, partial(self._locate, error)
                    )
                    raise
                finally:
                    self._count_skipped(transport.report)
            report = transport.report
            if self.chunks.writer.skipped and not report.stopped:
                rows = self.chunks.writer.rows - self.chunks.start_row
                report.rows = max(report.rows, rows)
            return policy.checked(report)

    def _open_source(self) -> Steps[Report | None]:
        """Open the source; return a report if there is nothing to load."""
        chunks = self.chunks
        try:
            # In a thread: this may read a whole RESP file.
            count = self.options.connections
            check = partial(check_several_connections, chunks.data, chunks.template, count)
            yield Pull(check, chunks.blocks)
            for feature in self._features:
                finished = yield from feature.opening(self)
                if finished is not None:
                    return finished
            yield from open_source(chunks)
        except CancelledError as cancellation:
            nothing = Report("socket")
            add_report(cancellation, nothing, str(nothing))
            raise
        except Exception as error:
            yield from locating(chunks.data, [error])
            raise
        return None

    def _transport(self, policy: ErrorPolicy) -> Transport:
        options, template = self.options, self.chunks.template
        if isinstance(options.mode, Replicate):
            from .replication import Replication

            return Replication(options, template, known_rows(self.chunks.data))
        needs = Requirements.of(
            template,
            nodes=True,
            fsync=options.durable == FSYNC,
            snapshot=options.durable == SNAPSHOT,
            import_source=options.import_source,
            indexes=template is not None,
            settings=SETTINGS_OF_WARNINGS,
        )
        if options.replaces:
            needs = replace(needs, optional_commands=commands_that_replace, himport=True)
        elif isinstance(options.mode, Merge):
            needs = replace(needs, optional_commands=partial(commands_over_any_keys, template))
        elif isinstance(options.mode, Serialize):
            needs = replace(needs, encoding_limits=True, commands=(*needs.commands, RESTORE))
        server = as_server(options.server, needs)
        names = command_names(self.chunks.data, template) if template is not None else ("",)
        return self._choose(
            options,
            server=server,
            policy=policy,
            resending=resending_of(template),
            transactions=not names or "MULTI" in names,
            nudges=template is not None and names is not None and "MULTI" not in names,
            start=self.start,
            field_sets=self.chunks.field_sets,
        )

    def _connect(self, transport: Transport) -> Steps[None]:
        chunks = self.chunks
        yield from transport.opening()
        try:
            check_connection_state(chunks.data, chunks.template, self.options, transport.answers)
            chunks.configure_for(transport.answers)
            for feature in self._features:
                yield from feature.connected(self)
        except BaseException as error:
            transport.kill()
            if not isinstance(error, Exception):
                add_report(error, transport.report, str(transport.report))
            raise

    def _send(self, transport: Transport) -> Steps[None]:
        """Send chunk after chunk until the source ends or the load is stopped."""
        chunks = self.chunks
        if isinstance(chunks.data, Pushed):
            chunks.data.call(while_empty=self._pump, while_full=lambda: run(self.idle()))
        sender = None if transport.lanes is None else _Sender(self._features, transport.lanes)
        while not transport.live_report.stopped:
            try:
                chunk = yield from self._next_chunk(sender)
            except LostConnection:  # noticed while waiting for an async source
                raise (yield from transport.explain_loss()) from None
            if self._failure is not None:
                raise self._failure
            if chunk is None and chunks.blocked:
                yield from transport.wait_for_room()
                yield from self._resend_refused()
                continue
            if chunk is not None:
                for feature in self._features:
                    yield from feature.sending(self, chunk)
                yield from transport.writing(chunk)
            yield from self._resend_refused(end=chunk is None)
            if chunk is None:
                break
            self._count_skipped(transport.live_report)
            for feature in self._features:
                yield from feature.sent(self)

    def _next_chunk(self, sender: ChunkSender | None) -> Steps[Chunk | None]:
        """Return the next chunk; None at the end, or if the load must stop or wait."""
        return next_chunk(self.chunks, sender)

    def _resend_refused(self, *, end: bool = False) -> Steps[None]:
        """Resend refused commands; see ``Transport.resend_refused()``."""
        assert self.transport is not None
        yield from self.transport.resend_refused(self.chunks, self.idle, end=end)

    def _resend_rest(self) -> Steps[None]:
        """After an exception of the source, wait until every sent command is answered.

        Features are not called: a second exception would drop the commands.
        """
        assert self.transport is not None
        self.chunks.forget()
        yield from self.transport.resend_refused(self.chunks, nothing, end=True)

    def _locate(self, error: BaseException | None = None) -> Steps[None]:
        """Find the file and line of the rows that failed."""
        errors = [*self.report.errors, *([] if error is None else [error])]
        yield from locating(self.chunks.data, errors)

    def _count_skipped(self, report: Report) -> None:
        report.skipped = self.chunks.writer.skipped
        report.nulls_skipped = self.chunks.writer.nulls_skipped

    def _pump(self) -> None:
        """Send, receive replies, and call ``idle()`` of the features while a Pushed source pauses.

        An exception of ``idle()`` is raised when the load continues: here, it would pass through
        Arrow, which changes its type. A lost connection is ignored here: its exception is raised
        again when the load continues.
        """
        assert self.transport is not None and self.transport.lanes is not None
        with suppress(Exception):
            self.transport.lanes.pump()
        try:
            run(self.idle())
        except Exception as error:
            self._failure = error

    # Features that observe the load at intervals, and the end.

    def _waiting(self, step: Step) -> Steps[Any]:
        """Call the features whose interval has passed, then wait."""
        for work in self._due():
            yield Blocking(work)
        return (yield self._observed(step))

    def _due(self) -> Iterator[Callable[[], object]]:
        """Call the features whose interval has passed; yield their work that may block."""
        now = time.monotonic()
        for number, (feature, last) in enumerate(self._begun):
            if now >= last + feature.every_s and is_own(self):
                self._begun[number] = feature, now
                work = feature.look(self)
                if work is not None:
                    yield work

    def _observed(self, step: Step) -> Step:
        """Return a step that also calls the features while an async source pauses."""
        if not isinstance(step, Pull) or step.meanwhile is None:
            return step
        meanwhile = step.meanwhile

        def both() -> bool:
            for work in self._due():
                work()
            return meanwhile()

        return step._replace(meanwhile=both)

    def _end(self, error: BaseException | None, report: Report | None) -> Steps[None]:
        """Call ``ended()`` of each feature."""
        try:
            self.error, self.over = error, True
            found = getattr(error, "report", report)
            if isinstance(found, Report) and (error is None or self.transport is not None):
                self._report = found
        finally:
            try:
                yield from self._end_features()
            finally:
                self.error = self._failure = error = None

    def _end_features(self) -> Steps[None]:
        """Call ``ended()`` of the features that have begun, even if one of them fails."""
        if not self._begun or not is_own(self):
            return
        try:
            yield from self._begun[-1][0].ended(self)
        except BaseException as second:
            self.error = second
            raise
        finally:
            del self._begun[-1]
            yield from self._end_features()


class _Sender:
    """The connections of a load. ``has_room`` is False while a feature admits no commands."""

    def __init__(self, features: Iterable[Feature], lanes: Any) -> None:
        self._features, self._lanes = features, lanes
        self.add, self.pump = lanes.add, lanes.pump

    @property
    def has_room(self) -> bool:
        return self._lanes.has_room and all(feature.admits() for feature in self._features)

    @property
    def report(self) -> Report:
        report: Report = self._lanes.report
        return report
