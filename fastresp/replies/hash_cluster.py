"""Fetch fields of hashes from all nodes of a cluster: rows in the order of the keys."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any

from ..outcome.errors import CommandError
from ..sources.chunks import Chunks
from ..transports.driver import Giving, Wanted
from .arrow_out import StringBatch
from .cluster_core import ClusterCore
from .growing_columns import string_column
from .hash_fields import HashFields, advising, key_of
from .key_pattern import is_text
from .node_core import NodeCore
from .reply_core import ReplyCore

__all__ = ["HashCluster"]

# A batch also ends when this much has arrived: as Python objects, values need up to six times that.
BATCH_BYTES = 8 << 20
# What the items of a reply may be.
ITEMS = {bytes, type(None)}


class HashCluster(ClusterCore):
    """Collects the replies of all nodes to HMGET as columns.

    The replies have to be put in order, so here each value is a Python object for a while.

    Args:
        core, others: as for ClusterCore.
        wanted: the fields.
        batch_rows: the most rows of a batch.
    """

    def __init__(
        self, core: ReplyCore, *others: Any, wanted: HashFields, batch_rows: int, follows: bool
    ) -> None:
        super().__init__(core, *others, follows=follows)
        self._raising = False  # giving() does
        self._wanted = wanted
        self._batch_rows = batch_rows
        self._rows: list[list[bytes | None]] = []
        self._before = 0  # bytes received before these rows
        text = wanted.text
        self._texts = None if all(text) else [i for i, each in enumerate(text) if each]

    def reading(self, chunks: Chunks) -> Generator[Wanted | Giving, Any, None]:
        """Send the keys, and yield batches of their rows; raises as ``exchange()``."""
        failure = yield from self.exchange(chunks)
        if failure is not None:
            with advising():
                raise failure
        yield from self._taken(rest=True)

    def check(self, node: NodeCore, first: int, replies: list[Any]) -> None:
        """Check that replies are rows, and replace the first that is not UTF-8 by an exception.

        Raises:
            LostConnection: a reply is impossible.
        """
        rows = [reply for reply in replies if type(reply) is list]
        count, others = len(self._wanted.names), set(map(type, replies)) - {list, CommandError}
        values: Iterable[bytes | None] = chain.from_iterable(rows)
        if others or set(map(len, rows)) - {count} or set(map(type, values)) - ITEMS:
            node.misunderstood("HMGET", next(row for row in replies if not self._is_row(row)))
        values = chain.from_iterable(rows)
        if self._texts is not None:
            values = (row[place] for row in rows for place in self._texts)
        # A line end is part of no character, so each value is checked by itself.
        if not is_text(b"\n".join(filter(None, values))):
            self._replace_invalid(node, first, replies)

    def _is_row(self, reply: Any) -> bool:
        if type(reply) is CommandError:
            return True
        wrong = type(reply) is not list or set(map(type, reply)) - ITEMS
        return not wrong and len(reply) == len(self._wanted.names)

    def _replace_invalid(self, node: NodeCore, first: int, replies: list[Any]) -> None:
        for index, row in enumerate(replies):
            for column, value in enumerate(row if type(row) is list else ()):
                if self._wanted.text[column] and value is not None and not is_text(value):
                    replies[index] = self._wanted.not_text(key_of(node, first + index), column)
                    return

    def giving(self) -> Iterator[Giving]:
        nothing: list[bytes | None] = [None] * len(self._wanted.names)
        for reply in self.replies():
            if type(reply) is CommandError:
                assert reply.arguments is not None
                assert reply.index is not None
                if not self._wanted.ignores(reply.text):
                    raise self._wanted.error(reply.text, reply.arguments[1], reply.index)
                reply = nothing
            self._rows.append(reply)
        yield from self._taken()

    def _taken(self, *, rest: bool = False) -> Iterator[Giving]:
        """Yield the full batches; at the end, also the rest."""
        while self._rows and (
            rest
            or len(self._rows) >= self._batch_rows
            or self.received - self._before >= BATCH_BYTES
        ):
            rows, self._rows = self._rows[: self._batch_rows], self._rows[self._batch_rows :]
            self._before = self.received
            yield Giving([self._batch(rows)])
            # The time until the caller asks for more does not count towards the timeout.
            self.touch()

    def _batch(self, rows: list[list[bytes | None]]) -> StringBatch:
        columns = zip(*rows, strict=True)
        text = self._wanted.text
        made = [string_column([*each], text=kind) for each, kind in zip(columns, text, strict=True)]
        return StringBatch(self._wanted.names, made)
