"""A task of an engine: it pushes batches into a load that runs in a thread."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from math import isnan, nan
from threading import Event, Thread
from typing import Any, Self
from weakref import finalize

from ..encode.template import Template
from ..load.checkpoint.former import AtWork
from ..load.checkpoint.job import Job, Part
from ..load.mass_insert import loading
from ..outcome.errors import CheckpointError, FastrespError, TransportError
from ..outcome.report import LoadErrors, Report
from ..server.forks import Inherited, is_own, own
from ..server.options import Options
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..sources.pushed import Pushed
from ..transports.driver import run
from ..transports.error_policy import ErrorPolicy
from ..transports.resend import Resending
from ..transports.socket import SocketTransport
from .rejects import RejectsOfTask
from .totals import Totals

__all__ = ["Task"]

# How often to look whether another attempt of the task is still at work.
LOOK_S = 0.5


class Aborted(FastrespError):
    """The task was aborted."""


class Ended(Exception):
    """The job has ended, with this task."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


class Task:
    """One attempt of a task, opened by ``Sink.open()``. Use it in a ``with`` statement.

    The load runs in a thread: while the engine makes a batch, the one before is encoded and sent,
    and replies are read. Leaving the statement without ``commit()`` aborts the task.

    Attributes:
        number: of the task, as text.
    """

    def __init__(
        self,
        template: Template,
        options: Options,
        number: str,
        job: Job | None,
        rejects: RejectsOfTask | None,
    ) -> None:
        self.number = number
        self._pushed = Pushed()
        self._rows = 0.0  # not a number if that is unknown
        self._load = Load(self._pushed, template, options, number, job, rejects)
        self._thread: Thread | None = None
        self._aborting = finalize(self, self._load.abort)
        own(self, lambda inherited: inherited._aborting.detach())

    def write(self, batch: Any) -> None:
        """Load the rows of a batch, after those of the batches before.

        Returns as soon as no other batch waits to be encoded.

        Args:
            batch: Arrow data: an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``, such
                as a pyarrow RecordBatch or Table, or a polars or pandas DataFrame.

        Raises:
            TypeError: it is something else.
            others: as ``fastresp.mass_insert``, also for the batches before.
        """
        self._check()
        if self._thread is None:
            self._thread = Thread(target=self._load.run, name=f"fastresp-{self.number}")
            self._thread.daemon = True
            self._thread.start()
        self._rows += len(batch) if hasattr(batch, "__len__") else getattr(batch, "num_rows", nan)
        if not self._pushed.put(batch):
            self._load.check()

    def commit(self) -> Totals:
        """Load what is left, wait for all replies, and return what became of the rows.

        Raises:
            LoadErrors: commands failed, and ``on_error`` is not ``"collect"``.
            others: as ``write()``.
        """
        self._check()
        self._pushed.end()
        self._join()
        self._aborting.detach()
        self._load.check()
        totals = self._load.totals
        if totals.rows != self._rows and not isnan(self._rows):
            raise CheckpointError(
                f"task {self.number} has {self._rows:,.0f} rows now, and had {totals.rows:,} when "
                "its job ended (use another name for another job)"
            )
        return totals

    def abort(self) -> None:
        """Load no more, and close the connections. Does nothing after ``commit()``.

        Batches that were written before may be loaded, or not.
        """
        if is_own(self):
            self._aborting()
            self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

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
    """The load of a task, run by its thread. It must not refer to the task, which may be dropped.

    Attributes:
        totals: what became of the rows.
    """

    def __init__(
        self,
        pushed: Pushed,
        template: Template,
        options: Options,
        number: str,
        job: Job | None,
        rejects: RejectsOfTask | None,
    ) -> None:
        self.totals = Totals(number)
        self._pushed = pushed
        self._template = template
        self._options = options
        self._job = job
        self._rejects = rejects
        self._aborted = Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Load all batches."""
        try:
            with nullcontext() if self._rejects is None else closing(self._rejects):
                self._run()
        except BaseException as error:
            self._error = error
        finally:
            self._pushed.drop()

    def abort(self) -> None:
        """End the load."""
        self._aborted.set()
        self._pushed.end(Aborted("the task was aborted"))

    def check(self) -> None:
        """Raise what ended the load, if something did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        """Load all batches, as soon as no other attempt is at work."""
        options = self._options
        if self._job is not None:
            self._job.begin()
        while not self._aborted.is_set():
            chunks = Chunks(self._pushed, self._template, options)
            try:
                report = run(loading(chunks, self._choose))
            except AtWork as other:
                # A second attempt that went on instead would end the first, which the engine would
                # begin again. One that has come to a standstill does not renew its lease.
                if other.seconds > 0:
                    self._aborted.wait(LOOK_S)
                else:
                    options = replace(options, take_over=True)
            except Ended as ended:
                rows, failed = ended.part
                self._settle(rows, Report("socket", resumed_at=rows, failed_before=failed))
                return
            else:
                self._settle(chunks.writer.rows, report)
                return

    def _settle(self, rows: int, report: Report) -> None:
        """Note what became of the rows; an attempt before may have failed at the end."""
        self.totals = Totals.of(self.totals.task, rows, report)
        if report.failed_before and self._options.on_error != "collect":
            raise LoadErrors(report)

    def _choose(
        self, options: Options, server: Server, policy: ErrorPolicy, resending: Resending | None
    ) -> SocketTransport:
        """Return the transport, unless the job has ended since the claim."""
        if self._job is not None:
            part = self._job.part(self.totals.task)
            if part is not None:
                raise Ended(part)
        carrier = SocketTransport(options, server=server, policy=policy, resending=resending)
        return carrier.because("engines load over a socket")
