"""A task of an engine, which pushes batches into a load that runs in a thread.

The failed commands are written as JSON Lines in a folder or an object store.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing, nullcontext, suppress
from itertools import chain, count
from math import inf, isnan, nan
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, Self
from urllib.parse import quote
from weakref import finalize

from ..encode.template import Template
from ..load.checkpoint.job import Job, TaskOutcome
from ..load.checkpoint.previous_loader import AtWork
from ..load.mass_insert import loading
from ..outcome.errors import CheckpointError, CommandError, FastrespError, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import LoadErrors, Report
from ..outcome.tracebacks import public
from ..server.file_io import needed_for
from ..server.forks import Inherited, is_own, on_fork
from ..server.options import Options
from ..sources.chunks import Chunks
from ..sources.several_tables import TICK_S, Pushed, check_batch
from ..transports.driver import run
from ..transports.error_policy import reject_line
from ..transports.socket import SocketTransport
from .totals import Totals

__all__ = ["RejectsOfTask", "Task", "TaskLoad", "check_folder"]

# Seconds between checks whether another attempt of the task is active.
RECHECK_S = 0.5
# Maximum seconds to wait for an aborted load to end; the load may be waiting for a server.
ABORT_S = 10.0


class Aborted(FastrespError):
    """The task was aborted."""


class Ended(Exception):
    """The job has already ended, and this task was part of it."""

    def __init__(self, outcome: TaskOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@public
class Task:
    """One attempt of a task, opened by ``Sink.open()``. Use it in a ``with`` statement.

    The load runs in a thread: while the engine computes a batch, the previous batch is encoded and
    sent, and replies are read. The task is aborted if it was not committed when the ``with``
    statement or the program ends, or when the last reference to the task is dropped.

    Only one thread at a time may use a task. After a fork, only the parent can use it.

    Attributes:
        number: number or name of the task, as text.
    """

    def __init__(self, load: TaskLoad) -> None:
        self.number = load.totals.task
        self._rows = 0.0  # NaN if unknown
        self._load = load
        self._aborting = finalize(self, self._load.abort)
        on_fork(self, lambda inherited: inherited._aborting.detach())

    def write(self, batch: Any) -> None:
        """Load a batch after the previous batches.

        Waits until all earlier batches are encoded, so at most two batches are in memory.

        Args:
            batch: Arrow data: an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``, such
                as a pyarrow RecordBatch or Table, or a polars or pandas DataFrame. Do not change
                the batch later, since it is read after this method returns.

        Raises:
            TypeError: the batch is not Arrow data.
            ValueError: the task has ended.
            LoadErrors: the load was stopped by ``on_error="stop"`` or ``max_errors``.
            others: as in ``fastresp.mass_insert``, for this or an earlier batch.
        """
        self._check()
        check_batch(batch)
        self._load.start()
        read = self._load.pushed.put(batch)
        self._rows += len(batch) if hasattr(batch, "__len__") else getattr(batch, "num_rows", nan)
        if not read:
            self._load.check()

    def commit(self) -> Totals:
        """Finish loading, wait for all replies, and return the task's Totals.

        Raises:
            CheckpointError: an earlier attempt of the task had different rows.
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
        if not self._load.started:
            self._load.check_empty()
        elif self._load.job_ended and totals.rows != self._rows and not isnan(self._rows):
            raise CheckpointError(
                f"task {self.number} has {self._rows:,.0f} rows now, and had {totals.rows:,} when "
                "its job ended (use another name for another job)"
            )
        return totals

    def abort(self) -> None:
        """Stop loading, and close the connections. Does nothing after ``commit()``.

        The last written batches may or may not be loaded. Waits up to 10 s for a server that does
        not answer.
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


class TaskLoad:
    """The load of a task, which runs in a thread.

    It does not refer to the Task, so that the Task can be dropped.

    Args:
        number: number of the task.
        job: the job of the task; None without ``exactly_once``.
        rejects: the rejects file, which the load closes at the end; None to write no rejects.

    Attributes:
        pushed: the source, to which the task adds batches.
        totals: the outcome; complete after the load.
        started: whether the load has started.
        job_ended: whether the job had already ended, so that this attempt loaded nothing.
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
        self.started = self.job_ended = False
        self._thread: Thread | None = None
        self.pushed = Pushed()
        self._template = template
        self._options = options
        self._job = job
        self._rejects = rejects
        self._aborted, self._ended = Event(), Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the load in a thread, unless it has already started."""
        if not self.started:
            self.started = True
            on_fork(self)
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
        """Wait until the load has ended, or for some seconds."""
        # Starting the thread may have been interrupted; the thread then has no ident.
        if self._thread is None or self._thread.ident is None:
            return
        until = inf if seconds is None else time.monotonic() + seconds
        # Not join(): after an interrupted join(), Python 3.11 reports the thread as ended.
        while (left := until - time.monotonic()) > 0 and not self._ended.wait(min(left, TICK_S)):
            pass

    def run(self) -> None:
        """Load all batches, and store the outcome or the exception."""
        try:
            with nullcontext() if self._rejects is None else closing(self._rejects):
                self._run()
        except CheckpointError as error:
            if isinstance(error.message, Message):
                error.args = (error.message.worded(in_job, python=True),)
            self._error = error
        except BaseException as error:
            self._error = error
        finally:
            self.pushed.drop()
            running.discard(self)
            self._ended.set()

    def abort(self) -> None:
        """Make the load end when it next waits."""
        self._aborted.set()
        self.pushed.end(Aborted("the task was aborted"))

    def _renew_lease(self) -> None:
        """Called while the load waits for its connections: renew the lease, or raise if aborted."""
        if self._aborted.is_set():
            raise Aborted("the task was aborted")
        self.pushed.while_full()

    def check(self) -> None:
        """If an exception has ended the load, raise the exception."""
        if self._error is not None:
            raise self._error

    def check_empty(self) -> None:
        """If the task has no batches, check that earlier attempts had no rows, as Job does."""
        if self._job is not None:
            self._job.check_empty(self.totals.task)

    def _run(self) -> None:
        """Load all batches after waiting until no other attempt of the task is active."""
        if self._job is not None:
            self._job.begin()
        while not self._aborted.is_set():
            chunks = Chunks(self.pushed, self._template, self._options)
            try:
                # Check first: ``loading()`` would create a new checkpoint for an ended job.
                self._check_ended()
                report = run(loading(chunks, self._choose_transport), waiting=self._renew_lease)
            except AtWork:
                # Do not take over from the active attempt: it would fail, and the engine would
                # restart it. If it hangs, its lease will expire.
                self._aborted.wait(RECHECK_S)
            except Ended as ended:
                self.job_ended = True
                rows, failed = ended.outcome
                self._set_totals(rows, Report("socket", resumed_at=rows, failed_before=failed))
                return
            else:
                self._set_totals(chunks.writer.rows, report)
                return

    def _check_ended(self) -> None:
        """Raise Ended if the job has ended, and CheckpointError if it ended without this task."""
        outcome = None if self._job is None else self._job.outcome_of(self.totals.task)
        if outcome is not None:
            raise Ended(outcome)

    def _set_totals(self, rows: int, report: Report) -> None:
        """Compute the totals; raise LoadErrors if earlier errors or a stop make the task fail."""
        self.totals = Totals.of(self.totals.task, rows, report)
        if report.stopped:
            raise LoadErrors(report, hint="(not all rows of the task were loaded)")
        if report.failed_before and self._options.on_error != "collect":
            raise LoadErrors(report)

    def _choose_transport(self, options: Options, **more: Any) -> SocketTransport:
        """Return the transport; raise if the job has ended since ``_run()`` checked it."""
        self._check_ended()
        return SocketTransport(options, **more)


def in_job(hint: Hint) -> str:
    """Return an option as text; replace ``checkpoint_clear`` by "another name of the job"."""
    return "another name of the job" if hint.option == "checkpoint_clear" else hint.flat


# All loads in threads. If the program ends while a thread is inside Arrow, the program crashes.
running: set[TaskLoad] = set()


def end_running() -> None:
    """At the end of the program, abort all loads, and wait until they have ended."""
    loads = [load for load in list(running) if is_own(load)]
    for load in loads:
        load.abort()
    until = time.monotonic() + ABORT_S
    for load in loads:
        load.join(max(0.0, until - time.monotonic()))


atexit.register(end_running)


def check_folder(folder: str) -> None:
    """Check that the packages to write rejects to a folder are installed; connects to nothing.

    Raises ImportError if fsspec, or its package for the URL's scheme, is missing, and ValueError if
    fsspec does not know the scheme.
    """
    if "://" in folder:
        _fsspec().get_filesystem_class(folder.partition("://")[0])


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise ImportError(
            "rejects at a URL need fsspec, which is not installed: pip install fsspec"
        ) from None
    return fsspec


class RejectsOfTask:
    """Writes failed commands to ``FOLDER/TASK-ATTEMPT.jsonl``, which ``read_rejects()`` reads.

    The file is created for the first failed command. If a file with this name exists, a
    number is appended to the name of the new file. The existing file is kept, since it may have
    rejects of an earlier attempt, for rows that this attempt skips. In an object store, the file
    appears when the task has ended.

    Args:
        folder: a path, or a URL that fsspec knows, such as ``s3://bucket/rejects``.
        name: name of the file, without its extension. Characters other than letters, digits and
            ``_.-~`` are percent-encoded.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self._folder = os.fspath(folder)
        self._name = quote(name, safe="")
        self._file: IO[str] | None = None
        self._open_files = ExitStack()

    def __call__(self, error: CommandError) -> None:
        """Write a failed command; raises OSError if writing fails."""
        if self._file is None:
            self._file = self._opened()
        self._file.write(reject_line(error))

    def _opened(self) -> IO[str]:
        names = chain([self._name], (f"{self._name}-{number}" for number in count(2)))
        if "://" in self._folder:
            return self._remote(names)
        folder = Path(self._folder)
        with needed_for(f"can't write rejects to {self._folder!r}"):
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                with suppress(FileExistsError):
                    # Write each line immediately, since a later attempt may skip the row.
                    file = (folder / f"{name}.jsonl").open("x", buffering=1)
                    return self._open_files.enter_context(file)
        raise AssertionError

    def _remote(self, names: Iterable[str]) -> IO[str]:
        system, path = _fsspec().url_to_fs(self._folder)
        system.makedirs(path, exist_ok=True)
        paths = (f"{path.rstrip('/')}/{name}.jsonl" for name in names)
        free = next(each for each in paths if not system.exists(each))
        return self._open_files.enter_context(system.open(free, "w"))

    def close(self) -> None:
        """Complete the file, if it was created; raises OSError if writing fails."""
        self._open_files.close()
