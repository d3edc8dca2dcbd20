"""The chunks of a source, one after another, ready to send."""

from __future__ import annotations

from collections import deque
from operator import call
from typing import Any

from ..encode.template import Template
from ..outcome.errors import TransportError
from ..resp.buffer import Chunk
from ..resp.merge import Merger
from ..server.answers import Answers
from ..server.forks import Inherited, is_own, own
from ..server.options import Options
from .files import Table
from .files.resp import RespFile
from .source import Encoder, encoding, is_columns, release

__all__ = ["Chunks"]


# The defaults of merge_items and merge_bytes: a server runs such a command in less than 1 ms.
MERGE_ITEMS = 1000
MERGE_BYTES = 1 << 16
# No chunk has more items or bytes.
MOST_MERGED = 1 << 40
# With a rate limit, a merged command is sent at once: the limit for this many seconds.
LIMITED_S = 0.01
# Commands over any keys, which a cluster refuses.
OVER_ANY_KEYS = frozenset(("MSET", "MSETEX", "DEL", "UNLINK"))


class Chunks:
    """The chunks of a source.

    Args:
        data: the result of ``as_source()``.
        template: the result of ``as_template()``.
        options: how values are encoded, and the rate limit.

    Attributes:
        writer: the encoder, once the source is open.
    """

    writer: Encoder

    def __init__(self, data: Any, template: Template | None, options: Options) -> None:
        self.data = data
        self.template = template
        self.options = options
        self._blocks = (
            hasattr(data, "__arrow_c_stream__")
            or hasattr(data, "__arrow_c_array__")
            or isinstance(data, RespFile)
        )
        self._source: Any = None
        self._merger: Merger | None = None
        self._ready: deque[Chunk] = deque()
        self._given = False  # whether the first of them was returned
        self._more = True
        self._closed = False
        own(self)

    @property
    def blocks(self) -> bool:
        """Whether ``open()`` and ``next()`` may block, so an event loop must not call them."""
        return self._blocks and is_own(self)

    def open(self) -> None:
        """Open the source if it is not open yet.

        Raises:
            TypeError, TemplateError, SourceError, OSError: it can't be read, or not with this
                template and options.
        """
        if self._source is None:
            self.writer, self._source = encoding(self.data, self.template, self.options)
            if self._closed:
                self.close()

    def next(self) -> Chunk | None:
        """Return the next chunk; None at the end.

        Raises:
            TransportError: this is a forked child of the process that opened the connection; that
                process's threads and event loop do not run here, so nothing can be waited for.
        """
        self._check_own()
        self._drop_given()
        while self._more and not self._ready:
            self._more = self.writer.fill(self._source)
            self._cut()
        return self._give()

    def rest(self, made: int) -> list[Chunk]:
        """After an exception, return the chunks after ``made`` commands, up to the first gap."""
        self._cut()
        found = []
        for chunk in self._ready:
            if chunk.first_command == made:
                found.append(chunk)
                made += chunk.commands
        return found

    def gathered(self) -> deque[Chunk]:
        """Return the chunks of the rows that arrived so far; the caller removes each it sends.

        Raises:
            EncodeError, TemplateError: as ``next()``.
        """
        self._drop_given()
        return self._ready

    def adapt(self, answers: Answers | None) -> None:
        """Make what the server accepts; None if it was not asked."""
        if answers is not None:
            self.writer.max_bulk_bytes = answers.max_bulk_bytes
        if self.options.mode == "merge":
            self._merger = merger(self.options, answers)

    def close(self) -> None:
        """Release the source, even while another thread opens it."""
        self._closed = True
        if self._source is not None:
            release(self._source)
        if isinstance(self.data, Table):
            self.data.close()  # wakes another thread that waits for it

    @property
    def is_columns(self) -> bool:
        """Whether the source yields batches of columns."""
        return is_columns(self._source)

    def _check_own(self) -> None:
        if not is_own(self):
            raise TransportError(str(Inherited("connection")))

    def _give(self) -> Chunk | None:
        if not self._ready:
            return None
        self._given = True
        return self._ready[0]

    def _drop_given(self) -> None:
        if self._given:
            self._given = False
            del self._ready[0]

    def _cut(self) -> None:
        # All in C: no signal handler can run between taking a chunk and storing it.
        chunks = filter(None, map(call, (self.writer.take,)))
        self._ready.extend(chunks if self._merger is None else map(self._merger.merge, chunks))


def merger(options: Options, answers: Answers | None) -> Merger:
    """Return what merges commands, as the options say and the server accepts."""
    items = options.merge_items or MERGE_ITEMS
    if options.rate_limit is not None:
        items = min(items, max(1, int(options.rate_limit * LIMITED_S)))
    lacking = OVER_ANY_KEYS if answers is None or answers.cluster else answers.lacking
    size = options.merge_bytes or MERGE_BYTES
    return Merger(min(items, MOST_MERGED), min(size, MOST_MERGED), lacking)
