"""The chunks of a source, one after another, for whoever sends them."""

from __future__ import annotations

from collections import deque
from operator import call
from typing import Any

from ..encode.template import Template
from ..outcome.errors import TransportError
from ..resp.buffer import Chunk
from ..server.forks import Inherited, is_own, own
from ..server.options import Options
from .files import Table
from .files.resp import RespFile
from .source import Encoder, encoding, is_columns, release

__all__ = ["Chunks"]


class Chunks:
    """The chunks of a source.

    Args:
        data: what ``as_source()`` gives.
        template: as ``as_template()`` gives it.
        options: how values are encoded, and at which rate they go.

    Attributes:
        writer: what encodes the rows, once the source is open.
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
        self._ready: deque[Chunk] = deque()
        self._given = False  # whether the first of them is
        self._more = True
        self._closed = False
        own(self)

    @property
    def blocks(self) -> bool:
        """Whether ``open()`` and ``next()`` wait as long as it takes: not for an event loop."""
        return self._blocks and is_own(self)

    def open(self) -> None:
        """Open the source, unless it is.

        Raises:
            TypeError, TemplateError, SourceError, OSError: it can't be read, or not so.
        """
        if self._source is None:
            self.writer, self._source = encoding(self.data, self.template, self.options)
            if self._closed:
                self.close()

    def next(self) -> Chunk | None:
        """The next chunk; None where there is none.

        Raises:
            TransportError: this is a child of the process that opened the connection, in which
                nothing can be waited for: its threads and its event loop do not run here.
        """
        self._check_own()
        self._drop_given()
        while self._more and not self._ready:
            self._more = self.writer.fill(self._source)
            self._cut()
        return self._give()

    def rest(self, made: int) -> list[Chunk]:
        """After an exception: the chunks that follow so many commands, unless there is a gap."""
        self._cut()
        found = []
        for chunk in self._ready:
            if chunk.first_command == made:
                found.append(chunk)
                made += len(chunk.ends)
        return found

    def gathered(self) -> deque[Chunk]:
        """The chunks of the rows that have come by now; whoever sends one takes it out.

        Raises:
            EncodeError, TemplateError: as ``next()``.
        """
        self._drop_given()
        return self._ready

    def refuse_larger(self, max_bulk_bytes: int | None) -> None:
        """Refuse arguments larger than the server takes; None for no limit."""
        self.writer.max_bulk_bytes = max_bulk_bytes

    def close(self) -> None:
        """Let go of the source, also while another thread opens it."""
        self._closed = True
        if self._source is not None:
            release(self._source)
        if isinstance(self.data, Table):
            self.data.close()  # another thread may wait for it

    @property
    def is_columns(self) -> bool:
        """Whether the source gives batches of columns."""
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
        # One call in C: no signal handler comes between taking a chunk and holding it.
        self._ready.extend(filter(None, map(call, (self.writer.take,))))
