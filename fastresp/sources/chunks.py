"""Cut a source into chunks: buffers of encoded commands that are ready to send.

The chunks of an async source are sent while the source pauses.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import chain, tee
from operator import call, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from ..encode.row_key import RowKeys
from ..encode.template import Template, check_creating, check_replacing
from ..encode.writer import CHUNK_BYTES, CHUNK_SECONDS
from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message
from ..resp.buffer import Chunk
from ..resp.commands import commands_with
from ..resp.merge import Converter, Merger, Replacer
from ..resp.route import Router
from ..resp.slots import Rules
from ..resp.transactions import Batcher, Gatherer
from ..server.answers import Answers
from ..server.forks import Inherited, is_own, on_fork
from ..server.options import Merge, Options, Rate, Replicate, Serialize
from .files.resp import RespFile
from .files.table import Table
from .several_tables import Pushed
from .source import Encoder, Entries, encoding, is_columns, release, released, row_writer

if TYPE_CHECKING:
    from ..encode.payload.serialized_chunk import LaneSplitter
    from ..encode.payload.serializer import Serializer

__all__ = ["PAYLOAD_BYTES", "AsyncChunks", "Chunks"]

# The defaults of Merge: a server runs a command of this size within 1 ms.
MERGE_ITEMS = 1000
MERGE_BYTES = 1 << 16
# The default of Serialize.max_bytes.
PAYLOAD_BYTES = 32 << 20
# Options with a larger number of items or bytes are reduced to this number.
MAX_MERGED = 1 << 40
# A lane is one connection of the load. The commands for a lane become a chunk at
# max(ROUTED_BYTES / lanes, MIN_ROUTED_BYTES) bytes.
ROUTED_BYTES = CHUNK_BYTES
MIN_ROUTED_BYTES = 1 << 16
# The maximum time for which commands are gathered before they are sent.
GATHERED_S = 1.0
# With a rate limit, a merged command has at most the commands that the limit allows in this many
# seconds, because a merged command is sent as a whole.
LIMITED_S = 0.01
# Returns a Merger or a Replacer for the commands of a lane.
Make: TypeAlias = Callable[[], Converter]
# Commands with several keys, used only after asking the server: it may lack MSETEX, and the user
# may lack permission.
OVER_ANY_KEYS = commands_with("many")


class Chunks:
    """Encodes a source, as returned by ``as_source()``, as chunks.

    Attributes:
        writer: the encoder, once the source is open.
        start_row: the first row of the source to load.
        field_sets: the HIMPORT PREPARE commands of the chunks so far; None if HSETs do not replace
            their hashes.
        in_order: whether replies are wanted in the order of the source. If so, no command
            waits for its chunk to fill while later commands are sent to other nodes.

    Raises:
        TemplateError: the commands of the template can't be serialised.
    """

    writer: Encoder
    in_order = False

    def __init__(self, data: Any, template: Template | None, options: Options) -> None:
        self.data = data
        self.template = template
        self.options = options
        if isinstance(options.mode, Serialize | Replicate):
            check_creating(template, file=isinstance(options.mode, Replicate))
        self.field_sets: list[bytes] | None = None
        if options.replaces:
            check_replacing(template)
            self.field_sets = []
        self._blocks = (
            hasattr(data, "__arrow_c_stream__")
            or hasattr(data, "__arrow_c_array__")
            or isinstance(data, RespFile | Entries)
        )
        self._source: Any = None
        self._merger: Converter | None = None
        self._router: Router | None = None
        self._serializer: Serializer | None = None
        self._splitter: LaneSplitter | None = None
        self._gatherer: Gatherer | None = None
        self._flushed = time.monotonic()
        self._observers: list[Callable[[Chunk], object]] = []
        self._observers_of_all: list[Callable[[Chunk], object]] = []
        self.start_row = 0
        self._batcher: Batcher | None = None
        self._ran = array("q")
        self._max_merged = MAX_MERGED
        self._ready: deque[Chunk] = deque()
        self._delivered = False  # whether the first chunk was returned
        self._more = True
        self._closed = False
        on_fork(self)

    @property
    def blocks(self) -> bool:
        """Whether ``open()`` and ``next()`` may block, so an event loop must not call them."""
        return self._blocks and is_own(self)

    def resume(
        self,
        start_row: int,
        ran: array[int] | None = None,
        batcher: Batcher | None = None,
        max_merged: int = MAX_MERGED,
    ) -> None:
        """Start at a row, as the checkpoint says. Call it before ``open()``.

        Args:
            ran: for each marker (a key of the checkpoint that stores progress), the number of rows
                whose commands have run.
            batcher: puts the commands into transactions; None to send them without transactions.
            max_merged: maximum number of items in a merged command.
        """
        self.start_row, self._batcher, self._max_merged = start_row, batcher, max_merged
        self._ran = array("q") if ran is None else ran

    def reach(self, markers: array[int]) -> None:
        """Set the values of the markers, once all commands up to the current row have run."""
        if self._batcher is not None:
            self._batcher.reached = markers

    def observe(self, function: Callable[[Chunk], object], *, earlier: bool = False) -> None:
        """Call a compiled function with each encoded chunk, before it is merged or routed.

        Call this before ``open()``.

        Args:
            earlier: whether to encode the rows before ``start_row`` for the function.
        """
        self._observers.append(function)
        if earlier:
            self._observers_of_all.append(function)

    def open(self) -> None:
        """Open the source if it is not open yet; raises as ``encoding()`` does."""
        if self._source is None:
            if self._observers_of_all and self.start_row:
                self._observe_earlier()
            self.writer, self._source = encoding(
                self.data, self.template, self.options, self.start_row
            )
            if self._closed:
                self.close()

    def _observe_earlier(self) -> None:
        """Encode the rows before ``start_row``, and perhaps some later rows, for observers."""
        writer, source = encoding(self.data, self.template, self.options)
        with released(source):
            more = True
            while more and writer.rows < self.start_row:
                more = writer.fill(source)
                if (chunk := writer.take()) is not None:
                    for observe in self._observers_of_all:
                        observe(chunk)

    @property
    def blocked(self) -> bool:
        """Whether the next chunk can be made only after the previous chunk was answered."""
        return self._serializer is not None and self._serializer.blocked

    def next(self) -> Chunk | None:
        """Return the next chunk; None at the end of the source, or if ``blocked`` is True.

        Raises:
            EncodeError, TemplateError, SourceError: a row can't be read or encoded.
            TransportError: the process is a forked child of the process that opened the connection.
                The parent's threads and event loop do not run in the child, so no wait could end.
        """
        self._check_own()
        self._drop_delivered()
        gatherer = self._gatherer
        paused = isinstance(self.data, Pushed) and self.data.paused
        if gatherer is not None and self._ready and self._more and not (gatherer.full or paused):
            self._fill()  # gather the next commands while this chunk is sent
        while self._more and not self._ready:
            self._fill()
            if gatherer is not None and self._is_due(gatherer):
                self._flush()
        return self._deliver()

    def _is_due(self, gatherer: Gatherer) -> bool:
        """Return whether there are enough gathered commands to send, or the source is slow."""
        assert self._router is not None
        late = time.monotonic() - self._flushed > GATHERED_S
        return gatherer.full or late or (self._router.paused and not is_columns(self._source))

    def _fill(self) -> None:
        """Encode rows until a chunk is full, and cut the chunk."""
        try:
            self._more = self.writer.fill(self._source)
        except Exception:
            self._cut()
            self._raise_refused()  # an error in an earlier row
            raise
        self._cut()

    def unsent(self, made: int) -> list[Chunk]:
        """After an exception, return the chunks that follow the load's first ``made`` commands.

        The chunks end at the first gap in the sequence of commands. A serialised key is omitted if
        the source may have more rows of this key.
        """
        self._cut()
        self._flush()
        found = []
        for chunk in self._ready:
            if chunk.first_command == made:
                found.append(chunk)
                made += chunk.commands
        return found

    def ready(self) -> deque[Chunk]:
        """Return the chunks of the rows so far; the caller removes each chunk that it sends."""
        self._drop_delivered()
        self._flush()
        return self._ready

    def drain(self) -> Iterator[Chunk]:
        """Yield each finished chunk, then remove it: ``Chunks.next()`` does not return it again."""
        self._drop_delivered()
        self._flush()
        while self._ready:
            yield self._ready[0]
            self._ready.popleft()

    def forget(self) -> None:
        """Drop the finished chunks, after the caller has sent the chunks of ``unsent()``."""
        self._delivered = False
        self._ready.clear()

    def remap(self, lanes: list[int]) -> None:
        """Set the lane of each slot; call it only after taking all chunks for the old lanes."""
        for spreading in (self._router, self._splitter):
            if spreading is not None:
                spreading.remap(lanes)

    def configure_for(self, answers: Answers | None) -> None:
        """Configure the encoding for a server's limits and topology; None for the defaults."""
        if answers is not None:
            self.writer.max_bulk_bytes = answers.max_bulk_bytes
        mode, count = self.options.mode, self.options.connections
        topology = None if answers is None else answers.topology
        several = topology is not None or count > 1
        make: Make | None = None
        if self.field_sets is not None:
            replacing = replacer(self.field_sets, answers)

            def make() -> Replacer:
                return replacing

        elif isinstance(mode, Merge):
            make = partial(merger, mode, self.options.rate, answers, self._max_merged)
        if isinstance(mode, Serialize):
            self._serializer = serializer(mode, count, answers)
            if topology is not None:
                from ..encode.payload.serialized_chunk import LaneSplitter

                lanes = topology.lanes(topology.nodes, count)
                self._splitter = LaneSplitter(lanes, self._serializer)
        elif several and self._batcher is not None:
            self._gatherer = Gatherer(
                self._batcher,
                self._ran,
                rules=None if topology is None or answers is None else Rules(answers.positions),
                merger=None if make is None else make(),
                start_row=self.start_row,
            )
            self._router = self._new_router(answers, None)
        elif several:
            self._router = self._new_router(answers, make)
        elif make is not None:
            self._merger = make()

    def _new_router(self, answers: Answers | None, make: Make | None) -> Router:
        """Return a router to the load's connections; in a cluster, to each node's connections.

        Each connection is a lane. If ``in_order``, the router has an additional lane for commands
        without a key.
        """
        count = lanes = self.options.connections
        of_slots = rules = None
        if answers is not None:
            rules = Rules(answers.positions)
            if answers.topology is not None:
                lanes = count * len(answers.topology.nodes)
                of_slots = answers.topology.lanes(answers.topology.nodes, count)
        if self.in_order:
            return Router(lanes + 1, 1, CHUNK_BYTES, of_slots=of_slots, keyless=lanes, rules=rules)
        size = max(ROUTED_BYTES // lanes, MIN_ROUTED_BYTES)
        gathers = self._batcher is not None
        # A chunk of fewer than ``full`` bytes may have been cut because the source is slow.
        full = CHUNK_BYTES if gathers else CHUNK_BYTES // 2
        return Router(
            lanes, size, full, make, of_slots=of_slots, rules=rules,
            start_row=self.start_row, for_all=not gathers,
        )  # fmt: skip

    @property
    def refused(self) -> bool:
        """Whether encoding has stopped at a row that can't be sent."""
        return self._router is not None and self._router.failing is not None

    def close(self) -> None:
        """Release the source, even while another thread opens it."""
        self._closed = True
        if self._source is not None:
            release(self._source)
        if isinstance(self.data, Table):
            self.data.close()  # wakes another thread that waits for the source

    def _check_own(self) -> None:
        if not is_own(self):
            raise TransportError(str(Inherited("connection")))

    def _deliver(self) -> Chunk | None:
        if not self._ready:
            self._end()
        if not self._ready:
            self._raise_refused()
            return None
        self._delivered = True
        return self._ready[0]

    def _drop_delivered(self) -> None:
        if self._delivered:
            self._delivered = False
            del self._ready[0]

    def _end(self) -> None:
        """Flush the router; at the end of the source, also serialise the last key."""
        serializer = self._serializer
        if serializer is not None and not self._more and not serializer.blocked:
            self._ready.extend(self._spread(map(call, (serializer.finish,))))
        self._flush()

    def _spread(self, several: Iterable[list[Chunk]]) -> Iterator[Chunk]:
        chunks = chain.from_iterable(several)
        if self._splitter is None:
            return chunks
        return chain.from_iterable(map(self._splitter.split, chunks))

    def _raise_refused(self) -> None:
        """Raise the error of a row that was encoded, but can't be routed or serialised."""
        for maker in (self._router, self._serializer):
            error = None if maker is None else RowKeys(self.template).of_failing(maker)
            if error is not None:
                raise error

    # _flush(), _store() and _cut() use compiled iterators only: no signal handler can run between
    # taking a chunk and storing it.

    def _flush(self) -> None:
        """Take all commands out of the router and the transactions."""
        if self._router is None:
            return
        self._flushed = time.monotonic()
        self._store(chain.from_iterable(map(call, (self._router.flush,))))
        if self._gatherer is not None:
            self._ready.extend(chain.from_iterable(map(call, (self._gatherer.flush,))))

    def _store(self, routed: Iterator[Chunk]) -> None:
        """Gather routed chunks for transactions; without transactions, they are ready to send."""
        if self._gatherer is None:
            self._ready.extend(routed)
        else:
            deque(map(self._gatherer.add, routed), 0)

    def _cut(self) -> None:
        chunks: Iterator[Chunk] = filter(None, map(call, (self.writer.take,)))
        for observe in self._observers:
            chunks, observed = tee(chunks)
            chunks = map(itemgetter(0), zip(chunks, map(observe, observed), strict=True))
        if self._router is not None:
            self._store(chain.from_iterable(map(self._router.route, chunks)))
            self._more = self._more and self._router.failing is None
        elif self._serializer is not None:
            several = map(self._serializer.serialize, chain(chunks, (None,)))
            self._ready.extend(self._spread(several))
            self._more = self._more and self._serializer.error is None
        else:
            if self._merger is not None:
                chunks = map(self._merger.merge, chunks)
            self._ready.extend(
                chunks if self._batcher is None else map(self._batcher.batch, chunks)
            )


def merger(mode: Merge, rate: Rate | None, answers: Answers | None, max_items: int) -> Merger:
    """Return a Merger for the options and the server; a command has at most ``max_items`` items."""
    items = mode.items or MERGE_ITEMS
    if rate is not None:
        items = min(items, rate.commands_in(LIMITED_S) or items)
    lacking = OVER_ANY_KEYS if answers is None else answers.refused
    by_slot = answers is not None and answers.cluster
    size = mode.bytes or MERGE_BYTES
    return Merger(min(items, max_items), min(size, MAX_MERGED), lacking, by_slot=by_slot)


def replacer(field_sets: list[bytes], answers: Answers | None) -> Replacer:
    """Return a Replacer for the server.

    Raises:
        TransportError: the server can't replace hashes, or the user lacks the permission.
    """
    if answers is None:
        return Replacer()
    in_cluster = answers.topology is not None
    refused = answers.refused if answers.tested else {"HIMPORT"}
    if answers.himport and "HIMPORT" not in refused:
        return Replacer(field_sets, in_cluster=in_cluster)
    needed = ["EVAL", *(("HLEN", "HKEYS", "HDEL", "PERSIST") if in_cluster else ("DEL",))]
    lacking = [name for name in needed if name in refused]
    if lacking:
        rules = " ".join(f"+{name.lower()}" for name in lacking)
        words = (
            f"the server can't replace hashes: no HIMPORT, and no {' or '.join(lacking)}; allow "
            f"this with ACL SETUSER ... {rules}, or use "
        )
        instead = (Hint("mode", "serialize"), " with ", Hint("exists", "replace", grouped=False))
        raise TransportError(Message(words, *instead))
    return Replacer(in_cluster=in_cluster)


def serializer(mode: Serialize, connections: int, answers: Answers | None) -> Serializer:
    """Return a Serializer for the server's version and settings."""
    from ..encode.payload.format import format_of
    from ..encode.payload.serializer import Serializer

    version, limits = (None, {}) if answers is None else (answers.version, answers.encoding_limits)
    valkey = answers is not None and answers.valkey
    return Serializer(
        format_of(version, limits, valkey=valkey, instead=", or load without serialising"),
        exists=mode.exists,
        max_bytes=min(mode.max_bytes or PAYLOAD_BYTES, MAX_MERGED),
        max_argument=None if answers is None else min(answers.max_bulk_bytes, MAX_MERGED),
        merger=Merger(MERGE_ITEMS, MERGE_BYTES),
        several=connections > 1 and (answers is None or answers.topology is None),
    )


class AsyncChunks(Chunks):
    """Chunks of an async iterable; ``next()`` returns an awaitable.

    While the source waits for its next row, ``ready()`` returns chunks of the earlier rows.
    """

    def __init__(self, data: Any, template: Template | None, options: Options) -> None:
        super().__init__(data, template, options)
        self._blocks = False

    def open(self) -> None:
        if self._source is None:
            self.writer = row_writer(self.template, self.options)
            self._source = aiter(self.data)

    def next(self) -> Awaitable[Chunk | None]:  # type: ignore[override]
        """Return an awaitable for the result of ``Chunks.next()``."""
        self._check_own()  # before the first await
        return self._next()

    async def _next(self) -> Chunk | None:
        self._drop_delivered()
        while self._more and not self._ready and not self.blocked:
            await self._gather(self._source)
            if not self._ready:
                await asyncio.sleep(0)  # every row was skipped
        return self._deliver()

    async def _gather(self, source: AsyncIterator[Any]) -> None:
        """Read and encode rows until a chunk is ready, or CHUNK_SECONDS have passed."""
        fill, deadline = self.writer.fill, time.monotonic() + CHUNK_SECONDS
        try:
            async for row in source:
                # Immediately: the source may change its row and yield it again.
                if fill((row,)) or time.monotonic() >= deadline:
                    break
            else:
                self._more = False
        except Exception:
            self._cut()
            self._raise_refused()  # an error in an earlier row
            raise
        self._cut()

    def ready(self) -> deque[Chunk]:
        self._cut()
        ready = super().ready()
        if not ready:
            self._raise_refused()
        return ready
