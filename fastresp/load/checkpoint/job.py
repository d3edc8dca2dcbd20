"""A job: several loads (tasks), each with its own checkpoint.

A stream is a sequence of jobs, which are called its epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import redis

from ...encode.template import Template
from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import LINE_SHOWN, shortened
from ...server.options import Options
from ...server.preflight import Requirements
from ...server.reply_parser import bytes_of, pairs_of
from ...server.settings import as_server
from ..commands import is_idempotent
from .checkpoint import StoredCheckpoint
from .links import Link, Links, check_name, name_of, possible_later

__all__ = ["Epoch", "Job", "TaskOutcome"]

# The field of the job's hash that contains the template; each other field is a task.
TEMPLATE = "(template)"
# The value of a task's field: its number of rows, and its number of failed commands.
OUTCOME = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})")


class TaskOutcome(NamedTuple):
    """The outcome of one task's load.

    Attributes:
        rows: number of rows of the task's source.
        failed: number of failed commands whose replies were received.
    """

    rows: int
    failed: int


class Epoch(NamedTuple):
    """Identifies one job of a stream; the jobs end in the order of their numbers.

    Attributes:
        stream: name of the stream.
        number: number of the job in the stream.
    """

    stream: str
    number: int

    @property
    def key(self) -> bytes:
        """The key that stores the number of the stream's last ended job."""
        return f"fastresp:{{{self.stream}}}:epoch".encode()


class Job:
    """The outcome of a job, stored in the hash ``fastresp:{NAME}:job`` with a field for each task.

    The hash is created when the job ends, and replaces the checkpoints of the tasks. A task that
    is repeated later finds the hash, and loads nothing. The hash of an epoch is deleted when the
    next epoch has ended. From then on, the stored number of the last ended epoch shows which
    epochs have ended.

    Args:
        name: name of the job.
        template: template of the tasks.
        options: load options of each task.
        split: a string that identifies how rows are divided between the tasks; None if unknown.
        epoch: the stream and the number of the job; None if the job is not part of a stream.
    """

    def __init__(
        self,
        name: str,
        template: Template,
        options: Options,
        split: str | None = None,
        epoch: Epoch | None = None,
    ) -> None:
        self.name = name
        self._template = template
        self._options = options
        self._server = as_server(options.server, Requirements(nodes=True))
        self._hash = f"fastresp:{{{name}}}:job".encode()
        self._split = split
        self._epoch = epoch
        self._split_key = f"fastresp:{{{name}}}:split".encode()

    def checkpoint(self, task: str) -> str:
        """Return the name of a task's checkpoint."""
        return f"{self.name}:{task}"

    def check(self, task: str = "") -> None:
        """Check the names of the job and of a task.

        Raises:
            CheckpointError: a name is empty, longer than 200 characters, or contains characters
                other than letters, digits, and ``-_.:``.
        """
        check_name(self.name, "exactly_once")
        check_name(self.checkpoint(task), "task_id")

    def begin(self) -> None:
        """Store ``split``, or check that it equals the stored split.

        Do nothing if ``split`` is None, or if the job has ended.

        Raises:
            CheckpointError: the job was started with another split, so rows may have moved from one
                task to another.
            TransportError: the server can't be reached.
        """
        if self._split is None:
            return
        key = self._split_key
        with self._home() as home:
            if home.call("EXISTS", self._hash):
                return
            _, found = home.together(("SET", key, self._split, "NX"), ("GET", key))
        begun = bytes_of("GET", found).decode(errors="backslashreplace")
        if begun != self._split:
            raise CheckpointError(
                f"job {self.name!r} was started with {begun}, and this is {self._split}: its tasks "
                "may have other rows now (remove the loaded rows, and load them under another name)"
            )

    def outcome_of(self, task: str) -> TaskOutcome | None:
        """Return the outcome of a task of an ended job; None if the job has not ended.

        Raises:
            CheckpointError: the job has ended without this task or with a different template; or
                its epoch has ended, and the job's hash was deleted.
            TransportError: the server can't be reached.
        """
        with self._home() as home:
            template, found = home.together(
                ("HGET", self._hash, TEMPLATE), ("HGET", self._hash, task)
            )
        if template is None:
            self._check_epoch()
            return None
        text = self._template.text
        if bytes_of("HGET", template) != text.encode():
            raise CheckpointError(
                f"job {self.name!r} has ended with the template "
                f"{shortened(template.decode(errors='backslashreplace'), LINE_SHOWN)!r}, "
                f"and this is {shortened(text, LINE_SHOWN)!r} (use another name for another job)"
            )
        if found is None:
            raise CheckpointError(
                f"job {self.name!r} has ended, and none of its tasks is {task!r}: its partitions "
                "have changed (use another name for another job)"
            )
        numbers = OUTCOME.fullmatch(bytes_of("HGET", found))
        if numbers is None:
            raise _damaged(self._hash, f"field {task!r}", found)
        return TaskOutcome(*map(int, numbers.groups()))

    def _check_epoch(self) -> None:
        """Raise CheckpointError if this job's epoch ended while this attempt was suspended."""
        if self._epoch is None:
            return
        with self._home(self._epoch.key) as home:
            last = _last_epoch(home, self._epoch)
        if last is not None and last >= self._epoch.number:
            raise CheckpointError(
                f"epoch {self._epoch.number:,} of stream {self._epoch.stream!r} has already ended, "
                f"and {last:,} is the last ended epoch: nothing was loaded"
            )

    def forget(self) -> None:
        """Delete the hash of the ended job."""
        with self._home() as home:
            home.call("DEL", self._hash)

    def end(self, outcomes: Mapping[str, TaskOutcome]) -> None:
        """Store the outcome of the tasks, and delete their checkpoints.

        This is idempotent, so the caller can repeat the call after a crash.

        Args:
            outcomes: the outcome of each task, by its name.

        Raises:
            CheckpointError: the server has lost rows of a task since that task ended.
            TransportError: the server can't be reached.
        """
        if outcomes:
            with self._home() as home:
                found = pairs_of("HGETALL", home.call("HGETALL", self._hash))
            known = {name.decode(errors="replace") for name in found}
            new = {task: outcome for task, outcome in outcomes.items() if task not in known}
            self._check_rows_present(new)
            self._store(new)
            self._with_each(outcomes, lambda _, checkpoint: checkpoint.delete())
        if self._epoch is not None:
            with self._home(self._epoch.key) as home:
                last = _last_epoch(home, self._epoch) or 0
                home.call("SET", self._epoch.key, max(last, self._epoch.number))

    def _store(self, outcomes: Mapping[str, TaskOutcome]) -> None:
        if not outcomes:
            return
        arguments = [TEMPLATE, self._template.text]
        for task, outcome in outcomes.items():
            arguments += task, f"{outcome.rows} {outcome.failed}"
        with self._home() as home:
            home.together(("HSET", self._hash, *arguments), ("DEL", self._split_key))

    def _check_rows_present(self, outcomes: Mapping[str, TaskOutcome]) -> None:
        """Read the tasks' markers to check that the server still has all rows."""

        def check(task: str, checkpoint: StoredCheckpoint) -> None:
            kept, outcome = min(checkpoint.ran()), outcomes[task]
            if kept < outcome.rows:
                raise possible_later(
                    f"task {task} of job {self.name!r} has loaded {outcome.rows:,} rows, but the "
                    f"server certainly has only the first {kept:,}: it was restarted or replaced, "
                    "and lost some (run the job again with the same partitions: each task loads "
                    "its missing rows)"
                )

        self._with_each(outcomes, check)

    def check_empty(self, task: str) -> None:
        """Check that a task without rows had no rows in earlier attempts either.

        Raises:
            CheckpointError: an earlier attempt has loaded rows; also for the reasons of
                ``begin()`` and ``outcome_of()``.
            TransportError: the server can't be reached.
        """
        self.begin()
        outcome = self.outcome_of(task)
        if outcome is None:
            checkpoint = self._checkpoint_of(task)
            try:
                rows = max(checkpoint.ran())
            finally:
                checkpoint.close()
        else:
            rows = outcome.rows
        if rows:
            raise CheckpointError(
                f"task {task} has no rows now, and {rows:,} were loaded before: it has other rows "
                "(use another name for another job)"
            )

    def _with_each(
        self, tasks: Iterable[str], act: Callable[[str, StoredCheckpoint], object]
    ) -> None:
        """Call a function with each task and its checkpoint, over shared connections.

        After a lost connection or a moved slot, reconnect and call the function again.
        """
        links: Links | None = None
        try:
            for task in tasks:
                if links is not None:
                    try:
                        act(task, self._checkpoint_of(task, links))
                        continue
                    except TransportError:
                        links.close()
                links = self._connect(self._hash)
                act(task, self._checkpoint_of(task, links))
        finally:
            if links is not None:
                links.close()

    def _checkpoint_of(self, task: str, links: Links | None = None) -> StoredCheckpoint:
        """Return a task's connected checkpoint.

        Args:
            task: name of the task.
            links: connections to use; None to open new connections.
        """
        options = self._options
        checkpoint = StoredCheckpoint(self._server, self.checkpoint(task), options.timeout)
        batched = not is_idempotent(self._template, options.nulls)
        checkpoint.open(options.connections, batched=batched, links=links)
        return checkpoint

    def _connect(self, key: bytes) -> Links:
        return Links(self._server, self._options.timeout, key, name_of(self.name))

    @contextmanager
    def _home(self, key: bytes | None = None) -> Iterator[Link]:
        """Yield a connection to the server; in a cluster, to the node of a key.

        Args:
            key: the key; None for the job's hash.
        """
        links = self._connect(key or self._hash)
        try:
            with links.home.explained():
                try:
                    yield links.home
                except redis.ResponseError as error:
                    if not str(error).startswith("WRONGTYPE"):
                        raise
                    what = (key or self._hash).decode()
                    raise CheckpointError(
                        f"{what}, or another key of job {self.name!r}, has another type: find out "
                        "who uses it, then use another name or delete it"
                    ) from error
        finally:
            links.close()


def _last_epoch(home: Link, epoch: Epoch) -> int | None:
    """Return the number of the stream's last ended epoch; None if no epoch has ended."""
    found = home.call("GET", epoch.key)
    if found is not None and not re.fullmatch(rb"[0-9]{1,18}", bytes_of("GET", found)):
        raise _damaged(epoch.key, "value", found)
    return None if found is None else int(found)


def _damaged(key: bytes, what: str, found: bytes) -> CheckpointError:
    return CheckpointError(
        f"the {what} of {key.decode()} is {found[:40]!r}, which fastresp did not write: find out "
        "who uses the key, then use another name or delete it"
    )
