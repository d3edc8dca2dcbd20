"""``Sink``: an engine sends it to all tasks, which use it to load their rows."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import closing
from copy import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ..encode.template import Template, TemplateLike, as_template
from ..load.checkpoint.job import Epoch, Job, TaskOutcome
from ..load.commands import is_idempotent
from ..outcome.errors import CheckpointError, TemplateError
from ..outcome.messages import GROUPED, LINE_SHOWN, Message, shortened
from ..outcome.tracebacks import public
from ..server.options import Checkpoint, Options, Replicate, Serialize, grouped
from ..server.preflight import Requirements
from ..server.settings import Server, with_password
from ..sources.chunks import Chunks
from .task import RejectsOfTask, Task, TaskLoad, check_folder
from .totals import Totals

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Sink", "SinkOfNamedJob", "check_columns", "load_partition"]

# Options of ``mass_insert`` that a task sets itself, or does not support.
NOT_FOR_TASKS = frozenset((
    "checkpoint", "checkpoint_clear", "default", "lineage", "metrics", "mirror", "mirror_limit",
    "progress", "receipt", "resume", "source_id", "take_over", "transport",
))  # fmt: skip
OPTIONS = sorted({*(each.name for each in fields(Options)), *GROUPED} - NOT_FOR_TASKS - {"server"})
# Number of rows to digest at a time. In total, 1,000,000 rows of 43 MB take 0.05 s.
DIGEST_ROWS = 1 << 16


@public
class Sink:
    """Describe where and how the tasks of an engine load their rows.

    A Sink opens no connection and can be pickled.

    Args:
        server: a URL, as for ``mass_insert``, or None for the environment variable ``REDIS_URL`` of
            each task. A client can't be sent to other machines.
        template: as for ``mass_insert``.
        exactly_once: the name of the job. With a name, each row is loaded exactly once, although
            engines rerun failed tasks, sometimes in parallel. Each task has a checkpoint, from
            which a new attempt resumes, so a task must have the same rows in the same order each
            time. Without a name, only idempotent commands are accepted, such as SET, HSET or SADD;
            and if two rows of a task write the same key, the older row may remain, because a
            second attempt can repeat the older write, and end before the newer write.
        tasks: number of tasks that load at the same time. These tasks share ``rate_limit`` and
            ``index_backlog`` equally.
        password: the server's password, if it is not in the URL.
        split: a description of how rows are divided between tasks, such as ``"8 partitions"``.
            With ``exactly_once``, until the job has ended, a task with a different description is
            refused before it sends anything.
        rejects: a folder, or a folder's URL for fsspec. Each attempt with failed commands writes a
            file ``TASK-ATTEMPT.jsonl`` for ``read_rejects()``; if this file exists, a number is
            added to the name.
        options: the other options of ``mass_insert`` that tasks support. The arguments of
            ``Merge`` and ``Serialize`` may be options by themselves, as on the command line:
            ``mode="merge", merge_items=100``.

    Raises:
        CheckpointError: the commands are not idempotent, and ``exactly_once`` is not given.
        ImportError: ``rejects`` is a URL, and fsspec or its package for the scheme is missing.
        TemplateError, ValueError, TypeError: an argument is invalid.
    """

    # The argument for loading each row exactly once, for messages.
    once_argument = "exactly_once='NAME-OF-THE-JOB'"

    def __init__(
        self,
        server: str | None,
        template: TemplateLike,
        *,
        exactly_once: str | None = None,
        tasks: int | None = None,
        password: str | None = None,
        split: str | None = None,
        rejects: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if server is not None and not isinstance(server, str):
            raise TypeError(
                "server must be a URL or None (REDIS_URL), since tasks may run elsewhere, not "
                f"{type(server).__name__}"
            )
        if not isinstance(exactly_once, str | None):
            raise TypeError(
                "exactly_once must be the name of the job, such as 'visits-2026-11', not "
                f"{exactly_once!r}"
            )
        found = as_template(template)
        if found is None:
            raise TypeError("a sink needs a template, such as 'HSET user:{id} {**}'")
        self.template: Template = found
        self.exactly_once = exactly_once
        self.split = split
        self._epoch: Epoch | None = None
        self._rejects = None if rejects is None else os.fspath(rejects)
        if self._rejects is not None:
            check_folder(self._rejects)
        self._server = server
        self._password = password
        self._options = _check_options(options)
        # Raises if the URL can't be parsed.
        Server(with_password(server, password), Requirements(nodes=True))
        self._check_attempts()
        self._share(tasks)
        if exactly_once is not None:
            self._job(exactly_once).check()

    def __repr__(self) -> str:
        where = Server(self._url, Requirements(nodes=True)) if self._server else "REDIS_URL"
        return f"<fastresp.sink.Sink of {shortened(self.template.text, LINE_SHOWN)!r} to {where}>"

    def _check_attempts(self) -> None:
        """Refuse commands and options that are not safe if a task runs a second time."""
        options = self._options
        if isinstance(options.mode, Replicate):
            raise ValueError(
                "a sink can't use mode='replicate', which needs an empty server for each load; use "
                "mode='serialize'"
            )
        if self.exactly_once is not None:
            if isinstance(options.mode, Serialize):
                raise CheckpointError(
                    "exactly_once can't be used with mode='serialize'; leave it out: with "
                    "exists='replace' a repeated task is safe"
                )
            if options.retry not in (None, "never"):
                raise CheckpointError(
                    "exactly_once can't be used with retry; the engine retries the task"
                )
        elif not self._idempotent:
            argument = self.once_argument
            if isinstance(options.mode, Serialize):
                argument = "exists='replace'"
            raise CheckpointError(
                "an engine may run a task twice, and these commands are not idempotent: "
                f"{shortened(self.template.text, LINE_SHOWN)!r}; pass {argument}"
            )

    @property
    def _idempotent(self) -> bool:
        """Whether the commands are idempotent."""
        mode = self._options.mode
        if isinstance(mode, Serialize):
            return mode.exists == "replace"
        return is_idempotent(self.template, self._options.nulls)

    def check_rewrites(self) -> None:
        """Refuse commands that are not idempotent, for streams whose batches each rewrite all rows.

        Raises:
            ValueError: the commands are not idempotent.
        """
        if not self._idempotent:
            raise ValueError(
                "outputMode('complete') writes all rows again in each batch, and these commands "
                f"are not idempotent: {shortened(self.template.text, LINE_SHOWN)!r}; use a command "
                "such as SET or HSET"
            )

    def _share(self, tasks: int | None) -> None:
        """Set the rate limit and the index backlog of each task to an equal share."""
        rate, backlog = self._options.rate, self._options.index_backlog
        if tasks is not None and (not isinstance(tasks, int) or tasks < 1):
            raise ValueError(f"tasks must be a number of 1 or more, not {tasks!r}")
        if backlog is not None and tasks is not None:
            self._options = replace(self._options, index_backlog=max(1, backlog // tasks))
        if rate is None:
            return
        if tasks is None:
            raise ValueError(
                "rate_limit is for all tasks together: pass with tasks= how many run at the same "
                "time"
            )
        self._options = replace(self._options, rate_limit=rate.shared_by(tasks))

    def _job(self, name: str) -> Job:
        options = replace(self._options, server=self._url)
        return Job(name, self.template, options, self.split, self._epoch)

    @property
    def _url(self) -> str | None:
        return with_password(self._server, self._password)

    def part(self, *names: object) -> Sink:
        """Return a sink for a part of the job that ends separately; the options are the same.

        Args:
            names: appended to the name of the job, such as the number of an epoch.
        """
        other = copy(self)
        if self.exactly_once is not None:
            other.exactly_once = ":".join(map(str, (self.exactly_once, *names)))
        return other

    def epoch(self, query: str, number: int) -> Sink:
        """Return a sink for an epoch of a stream. A later run of the stream may end the epoch."""
        other = self.part(query, number)
        other.split = None
        if self.exactly_once is not None:
            other._epoch = Epoch(f"{self.exactly_once}:{query}", int(number))
        return other

    def check(self, data: Any) -> None:
        """Check that the template fits the columns of ``data``; sends nothing.

        Args:
            data: Arrow data as for ``Task.write()``; it may have no rows.

        Raises:
            TemplateError: the template does not fit.
        """
        with closing(Chunks(data, self.template, self._options)) as chunks:
            chunks.open()

    def open(self, task_id: int | str, attempt: int = 0, rows: str = "") -> Task:
        """Open an attempt of a task. Nothing is sent before the first batch.

        Args:
            task_id: number or name of the task or its partition, the same for each attempt.
            attempt: number of the attempt, for the name of a rejects file.
            rows: an ID of the task's rows. With ``exactly_once``, an attempt is refused if an
                earlier attempt had a different ID.

        Raises:
            CheckpointError: with ``exactly_once``, the name of the job or the task is too long, or
                has characters other than letters, digits, and ``-_.:``.
        """
        number, options, job = str(task_id), replace(self._options, server=self._url), None
        if self.exactly_once is not None:
            job = self._job(self.exactly_once)
            job.check(number)
            options = replace(
                options,
                checkpoint=Checkpoint(
                    job.checkpoint(number),
                    resume=True,
                    source_id=f"task {number}: {rows}" if rows else f"task {number}",
                ),
            )
        rejects = None
        if self._rejects is not None:
            rejects = RejectsOfTask(self._rejects, f"{number}-{attempt}")
            options = replace(options, rejects=rejects)
        return Task(TaskLoad(self.template, options, number, job, rejects))

    def load(self, batches: Iterable[Any], task_id: int | str, attempt: int = 0) -> Totals:
        """Open a task, write all batches, and commit the task; return the Totals.

        Args:
            batches, task_id, attempt: as for ``Task.write()`` and ``open()``.

        Raises:
            others: as in ``Task.write()``, ``Task.commit()`` and ``open()``.
        """
        with self.open(task_id, attempt) as task:
            for batch in batches:
                task.write(batch)
            return task.commit()

    def finish_epoch(self, query: str, number: int, totals: Iterable[Totals]) -> None:
        """End an epoch; delete the previous epoch's records, because that epoch can't run again.

        Raises:
            CheckpointError: as in ``finish()``.
            TransportError: the server can't be reached.
        """
        self.epoch(query, number).finish(totals)
        self.epoch(query, number - 1).forget()

    def forget(self) -> None:
        """Delete the hash that ``finish()`` stored. Call this when the engine can't rerun the job.

        Raises:
            TransportError: the server can't be reached.
        """
        if self.exactly_once is not None:
            self._job(self.exactly_once).forget()

    def load_table(self, table: pa.Table, task_id: int | str, attempt: int = 0) -> Totals:
        """Open a task, load all rows, and commit the task; return the Totals.

        With ``exactly_once``, the task is refused if an earlier attempt had different rows.

        Args:
            table: all rows of the task.
            task_id, attempt: as for ``open()``.

        Raises:
            CheckpointError: an earlier attempt had different rows; nothing was sent.
            others: as in ``Task.write()``, ``Task.commit()`` and ``open()``.
        """
        rows = "" if self.exactly_once is None else digest(table)
        with self.open(task_id, attempt, rows) as task:
            task.write(table)
            return task.commit()

    def finish(self, totals: Iterable[Totals]) -> Totals:
        """End the job after all tasks have committed; return the sum of their totals.

        With ``exactly_once``, one hash ``fastresp:{JOB}:job`` replaces the tasks' checkpoints, so
        that the job can't run again.

        Args:
            totals: the results of each task's ``commit()``.

        Raises:
            CheckpointError: the server was restarted or replaced, and has lost rows of a task.
                Rerun all tasks: each task loads its missing rows.
            TransportError: the server can't be reached.
        """
        task_totals = list(totals)
        if self.exactly_once is not None:
            outcomes = {each.task: TaskOutcome(each.rows, each.failed) for each in task_totals}
            self._job(self.exactly_once).end(outcomes)
        return Totals.sum(task_totals)


def _check_options(options: dict[str, Any]) -> Options:
    """Return the options of a sink; raise TypeError or ValueError if they can't be used."""
    for name in options:
        if name not in OPTIONS:
            what = "is not supported for tasks" if name in NOT_FOR_TASKS else "is unknown"
            raise TypeError(f"the option {name} {what}; the options are {', '.join(OPTIONS)}")
    try:
        return Options(transport="socket", **grouped(options))
    except ValueError as error:
        message = error.args[0]
        if isinstance(message, Message):
            raise ValueError(message.worded(lambda hint: hint.flat, python=True)) from None
        raise


class SinkOfNamedJob(Sink):
    """A sink for a job that the engine has named, so ``exactly_once`` is a bool, not a name."""

    once_argument = "exactly_once=True"

    def __init__(
        self,
        server: str | None,
        template: TemplateLike,
        job: str,
        exactly_once: bool,
        **options: Any,
    ) -> None:
        if not isinstance(exactly_once, bool):
            raise TypeError(
                f"exactly_once must be True or False here, not {exactly_once!r}: the engine names "
                "the job"
            )
        name = job if exactly_once else None
        super().__init__(server, template, exactly_once=name, **options)


def check_columns(sink: Sink, columns: pa.Table, text_note: str = "") -> None:
    """Check that the template of a sink fits the columns, unless a column type is unknown (null).

    Args:
        columns: a table without rows.
        text_note: a note for the error if a text column has the wrong type for the template.

    Raises:
        TemplateError: the template does not fit.
    """
    try:
        sink.check(columns)
    except TemplateError as error:
        if "is of type null" in str(error):
            return
        if text_note and "is of type string" in str(error):
            error.add_note(text_note)
        raise


def load_partition(sink: Sink, table: pa.Table, task_id: int) -> Totals:
    """Load all rows of a task whose engine does not number its attempts.

    If there are no rows, the columns are ignored, since their types may be unknown.
    """
    if not table.num_rows:
        return sink.load([], task_id)
    return sink.load_table(table, task_id, attempt=time.time_ns())


def digest(table: pa.Table) -> str:
    """Return the number of rows, and a short digest of the rows in order.

    The digest does not depend on the division into batches, or on the bytes stored for nulls.
    """
    import pyarrow as pa

    hashed = hashlib.blake2b(str(table.schema.remove_metadata()).encode(), digest_size=16)
    table = table.replace_schema_metadata()
    for first in range(0, table.num_rows, DIGEST_ROWS):
        part = table.slice(first, DIGEST_ROWS)
        try:
            # take() writes zeros under nulls, and drops unused bytes.
            part = part.take(pa.array(range(part.num_rows), pa.int64())).combine_chunks()
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, part.schema) as writer:
                writer.write_table(part)
            hashed.update(stream.getvalue())
        except pa.ArrowNotImplementedError:  # such as for views
            hashed.update(repr(part.to_pylist()).encode())
    return f"{table.num_rows} rows, {hashed.hexdigest()}"
