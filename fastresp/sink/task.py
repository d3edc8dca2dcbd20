"""A task of an engine: it pushes batches into a load that runs in a thread."""

from __future__ import annotations

import atexit
import time
from contextlib import closing, nullcontext
from math import inf, isnan, nan
from threading import Event, Thread
from typing import Any, Self
from weakref import finalize

from ..encode.template import Template
from ..load.checkpoint.former import AtWork
from ..load.checkpoint.job import Job, Part
from ..load.mass_insert import loading
from ..outcome.errors import CheckpointError, FastrespError, TransportError
from ..outcome.report import LoadErrors, Report
from ..outcome.tracebacks import public
from ..server.forks import Inherited, is_own, own
from ..server.options import Options
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..sources.pushed import TICK_S, Pushed, check_batch
from ..transports.driver import run
from ..transports.error_policy import ErrorPolicy
from ..transports.resend import Resending
from ..transports.socket import SocketTransport
from .rejects import RejectsOfTask
from .totals import Totals

__all__ = ["Load", "Task"]

# Seconds between checks whether another attempt of the task is active.
LOOK_S = 0.5
# Seconds to wait for an aborted load to end; the load may be waiting for a server.
ABORT_S = 10.0


class Aborted(FastrespError):
    """The task was aborted."""


class Ended(Exception):
    """The job has ended, and included this task."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


@public
class Task:
    """One attempt of a task, opened by ``Sink.open()``. Use it in a ``with`` statement.

    The load runs in a thread: while the engine computes a batch, the previous batch is encoded and
    sent, and replies are read. Leaving the ``with`` statement without ``commit()`` aborts the task,
    as does dropping the task or ending the program.

    Only one thread at a time may use a task. After a fork, only the parent can use it.

    Attributes:
        number: number or name of the task, as text.
    """

    def __init__(self, load: Load) -> None:
        self.number = load.totals.task
        self._rows = 0.0  # NaN if unknown
        self._load = load
        self._aborting = finalize(self, self._load.abort)
        own(self, lambda inherited: inherited._aborting.detach())

    def write(self, batch: Any) -> None:
        """Load a batch after the previous batches.

        Returns when no earlier batch waits to be encoded, so at most two batches are in memory.

        Args:
            batch: Arrow data: an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``, such
                as a pyarrow RecordBatch or Table, or a polars or pandas DataFrame. It is read after
                this method returns, so do not change it.

        Raises:
            TypeError: the batch is not Arrow data.
            ValueError: the task has ended.
            LoadErrors: the load was stopped by ``on_error="stop"`` or ``max_errors``.
            others: as in ``fastresp.mass_insert``, for this or an earlier batch.
        """
        self._check()
        check_batch(batch)
        self._load.begin()
        read = self._load.pushed.put(batch)
        self._rows += len(batch) if hasattr(batch, "__len__") else getattr(batch, "num_rows", nan)
        if not read:
            self._load.check()

    def commit(self) -> Totals:
        """Load the remaining batches, wait for all replies, and return the task's Totals.

        Raises:
            CheckpointError: an earlier attempt had more rows.
            LoadErrors: commands failed, in this or an earlier attempt, and ``on_error`` is not
                ``"collect"``; or the load was stopped.
            others: as in ``write()``.
        """
        self._check()
        self._load.pushed.end()
        self._load.join()
        self._aborting.detach()
        self._load.check()
        totals = self._load.totals
        if not self._load.begun:
            self._load.check_empty()
        elif self._load.of_ended and totals.rows != self._rows and not isnan(self._rows):
            raise CheckpointError(
                f"task {self.number} has {self._rows:,.0f} rows now, and had {totals.rows:,} when "
                "its job ended (use another name for another job)"
            )
        return totals

    def abort(self) -> None:
        """Stop loading, and close the connections. Does nothing after ``commit()``.

        Written batches may or may not be loaded. Waits up to 10 s for a server that does not
        answer.
        """
        if is_own(self):
            self._aborting()
            self._load.join(ABORT_S)

    def _check(self) -> None:
        if not is_own(self):
            raise TransportError(str(Inherited("task")))
        if not self._aborting.alive:
            raise ValueError("this task has ended; open another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()


class Load:
    """The load of a task, in its own thread; has no reference to the task, which may be dropped.

    Args:
        number: number of the task.
        job: job of the task, with ``exactly_once``.
        rejects: the rejects file, closed at the end; None if the task has no folder for rejects.

    Attributes:
        pushed: the source.
        totals: the outcome.
        begun: whether the load has started.
        of_ended: whether the job had already ended, so that nothing was loaded.
    """

    def __init__(
        self,
        template: Template,
        options: Options,
        number: str,
        job: Job | None,
        rejects: RejectsOfTask | None,
    ) -> None:
        self.totals = Totals(number)
        self.begun = self.of_ended = False
        self._thread: Thread | None = None
        self.pushed = Pushed()
        self._template = template
        self._options = options
        self._job = job
        self._rejects = rejects
        self._aborted, self._ended = Event(), Event()
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start the load in a thread, unless it has started."""
        if not self.begun:
            self.begun = True
            own(self)
            running.add(self)
            # A non-daemon thread would keep the program from ending.
            self._thread = Thread(target=self.run, name=f"fastresp-{self.totals.task}", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._error = TransportError(
                    f"task {self.totals.task} can't start its load: {error} (the process or its "
                    "container may have too many threads)"
                )
                running.discard(self)
                self.pushed.drop()
                self._ended.set()
                raise self._error from error

    def join(self, seconds: float | None = None) -> None:
        """Wait until the load has ended.

        Args:
            seconds: maximum seconds; None for no limit.
        """
        # The ident is missing if starting the thread was interrupted.
        if self._thread is None or self._thread.ident is None:
            return
        until = inf if seconds is None else time.monotonic() + seconds
        # After an interrupted join(), Python 3.11 reports a thread as ended.
        while (left := until - time.monotonic()) > 0 and not self._ended.wait(min(left, TICK_S)):
            pass

    def run(self) -> None:
        """Load all batches."""
        try:
            with nullcontext() if self._rejects is None else closing(self._rejects):
                self._run()
        except BaseException as error:
            self._error = error
        finally:
            self.pushed.drop()
            running.discard(self)
            self._ended.set()

    def abort(self) -> None:
        """End the load at its next wait."""
        self._aborted.set()
        self.pushed.end(Aborted("the task was aborted"))

    def _waiting(self) -> None:
        """Renew the lease, or abort, while the load waits for its connections."""
        if self._aborted.is_set():
            raise Aborted("the task was aborted")
        self.pushed.waiting()

    def check(self) -> None:
        """Raise the error that ended the load, if any."""
        if self._error is not None:
            raise self._error

    def check_empty(self) -> None:
        """Check that no earlier attempt of a task without batches had rows.

        Raises:
            CheckpointError: an earlier attempt had rows.
            TransportError: the server can't be reached.
        """
        if self._job is not None:
            self._job.check_empty(self.totals.task)

    def _run(self) -> None:
        """Load all batches, once no other attempt is active."""
        if self._job is not None:
            self._job.begin()
        while not self._aborted.is_set():
            chunks = Chunks(self.pushed, self._template, self._options)
            try:
                # Before the claim, which would create a new checkpoint.
                self._check_ended()
                report = run(loading(chunks, self._choose), waiting=self._waiting)
            except AtWork:
                # If this attempt took over, the first attempt would fail, and the engine would
                # restart it. An attempt that hangs does not renew its lease.
                self._aborted.wait(LOOK_S)
            except Ended as ended:
                self.of_ended = True
                rows, failed = ended.part
                self._settle(rows, Report("socket", resumed_at=rows, failed_before=failed))
                return
            else:
                self._settle(chunks.writer.rows, report)
                return

    def _check_ended(self) -> None:
        """End the load if the job has ended.

        Raises:
            Ended: the job has ended.
            CheckpointError: the job has ended without this task, or a later epoch has ended.
        """
        part = None if self._job is None else self._job.part(self.totals.task)
        if part is not None:
            raise Ended(part)

    def _settle(self, rows: int, report: Report) -> None:
        """Compute the totals.

        Raises:
            LoadErrors: an earlier attempt had errors, or the load was stopped before its end.
        """
        self.totals = Totals.of(self.totals.task, rows, report)
        if report.stopped:
            raise LoadErrors(report, hint="(not all rows of the task were loaded)")
        if report.failed_before and self._options.on_error != "collect":
            raise LoadErrors(report)

    def _choose(
        self, options: Options, server: Server, policy: ErrorPolicy, resending: Resending | None
    ) -> SocketTransport:
        """Return the transport, unless the job has ended since the claim."""
        self._check_ended()
        return SocketTransport(options, server=server, policy=policy, resending=resending)


# Loads in threads. If the program ends while such a thread is inside Arrow, the program crashes.
running: set[Load] = set()


def end_running() -> None:
    """Abort all loads, and wait until they have ended, before the program ends."""
    loads = [load for load in list(running) if is_own(load)]
    for load in loads:
        load.abort()
    until = time.monotonic() + ABORT_S
    for load in loads:
        load.join(max(0.0, until - time.monotonic()))


atexit.register(end_running)
