"""A job of several loads, each with a checkpoint of its own: what they have done, when all have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ...outcome.errors import CheckpointError
from ...server.settings import as_server
from ...server.url_or_client import ServerLike
from .links import Link, Links, name_of
from .marker import Checkpoint, check_name

__all__ = ["Job", "Part"]


class Part(NamedTuple):
    """What the load of one task has done.

    Attributes:
        rows: the rows of its source.
        failed: commands that failed, as far as their replies were seen.
    """

    rows: int
    failed: int


class Job:
    """The hash ``fastresp:{NAME}:job``, which has a field for each task when the job has ended.

    It takes the place of the checkpoints of the tasks. A task that still begins finds it.

    Args:
        server: where the loads go.
        name: of the job.
        timeout: seconds to connect, and to wait for each reply.
        split: what divides the rows between the tasks; None if that is unknown.
    """

    def __init__(
        self, server: ServerLike, name: str, timeout: float | None, split: str | None = None
    ) -> None:
        self.name = name
        self._server = as_server(server, None, nodes=True)
        self._timeout = timeout
        self._hash = f"fastresp:{{{name}}}:job".encode()
        self._split = split
        self._split_key = f"fastresp:{{{name}}}:split".encode()

    def checkpoint(self, task: str) -> str:
        """Return the name of a task's checkpoint."""
        return f"{self.name}:{task}"

    def check(self, task: str = "") -> None:
        """Check the names of the job and of a task.

        Raises:
            CheckpointError: one has other characters than letters, digits, and ``-_.:``.
        """
        check_name(self.name, "exactly_once")
        check_name(self.checkpoint(task), "task_id")

    def begin(self) -> None:
        """Write down the split, if this is the first task of the job.

        Raises:
            CheckpointError: the job was begun with another split. Rows that one task has loaded may
                be those of another task now.
            TransportError: the server can't be reached.
        """
        if self._split is None:
            return
        key = self._split_key
        with self._home() as home:
            if home.call("EXISTS", self._hash):
                return
            _, found = home.together(("SET", key, self._split, "NX"), ("GET", key))
        if found.decode() != self._split:
            raise CheckpointError(
                f"job {self.name!r} was begun with {found.decode()}, and this is "
                f"{self._split}: its tasks may have other rows now (load the rows under another "
                "name, after removing what was loaded)"
            )

    def part(self, task: str) -> Part | None:
        """Return what a task of an ended job has done; None if the job has not ended.

        Raises:
            CheckpointError: the job has ended without such a task.
            TransportError: the server can't be reached.
        """
        with self._home() as home:
            count, found = home.together(("HLEN", self._hash), ("HGET", self._hash, task))
        if count and found is None:
            raise CheckpointError(
                f"job {self.name!r} has ended with {count:,} tasks, and none of them is {task!r}: "
                "its partitions are others now (use another name for another job)"
            )
        return None if found is None else Part(*map(int, found.split()))

    def forget(self) -> None:
        """Delete what was written down at the end.

        Raises:
            TransportError: the server can't be reached.
        """
        with self._home() as home:
            home.call("DEL", self._hash)

    def end(self, parts: Mapping[str, Part], connections: int) -> None:
        """Write down what the tasks have done, and delete their checkpoints.

        Args:
            connections: of each load.

        Raises:
            TransportError: the server can't be reached.
        """
        if not parts:
            return
        words = [word for task, part in parts.items() for word in (task, "{} {}".format(*part))]
        with self._home() as home:
            home.together(("HSET", self._hash, *words), ("DEL", self._split_key))
        for task in parts:
            checkpoint = Checkpoint(self._server, self.checkpoint(task), self._timeout)
            checkpoint.open(connections, batched=True)
            checkpoint.delete()

    @contextmanager
    def _home(self) -> Iterator[Link]:
        links = Links(self._server, self._timeout, self._hash, name_of(self.name))
        try:
            with links.home.explained():
                yield links.home
        finally:
            links.close()
