"""``mass_insert``, ``iter_replies`` and ``execute`` for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
)
from contextlib import aclosing, closing, suppress
from typing import Any, Literal

from .encode.row_writer import CHUNK_SECONDS
from .encode.template import NO_SCRIPTS, TemplateLike, as_template
from .lists.aio import ListBuffer
from .load.command_info import check_spread
from .load.progress import Progress, reporting
from .outcome.errors import TransportError
from .outcome.report import Report
from .replies import fetch_hashes as fetch
from .replies.arrow_out import StringBatch
from .replies.fetch_hashes import BATCH_ROWS, Keys
from .replies.stream import (
    More,
    one_command,
    one_reply,
    reply_core,
)
from .resp.buffer import Chunk
from .server.forks import Inherited, is_own, own
from .server.rehearsal import rehearsal_of
from .server.settings import Server, ServerLike
from .sources.files.resp import RespFile
from .sources.source import (
    Data,
    Encoder,
    as_source,
    encoding,
    is_columns,
    place_of,
    release,
    row_writer,
)
from .transports.aio import (
    AioTransport,
    connect,
    told,
    wait_for,
)
from .transports.base import add_report
from .transports.choice import check_cluster
from .transports.connection import Connection, LostConnection
from .transports.error_policy import ErrorPolicy, MaxErrors, Rejects
from .transports.lanes import Lanes
from .transports.stream import Wait

__all__ = ["ListBuffer", "execute", "fetch_hashes", "iter_replies", "mass_insert"]

# Rows of an async source that are gathered before they are encoded: a call of the encoder costs
# as much as some rows.
GATHERED_ROWS = 32
# A source idle this long counts as paused.
PAUSE_SECONDS = 0.02


async def mass_insert(
    data: Data | AsyncIterable[Any],
    template: TemplateLike = None,
    *,
    server: ServerLike = None,
    transport: Literal["auto", "socket"] = "auto",
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: float | None = None,
    connections: int = 1,
    nulls: Literal["error", "skip", "empty"] = "error",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
) -> Report:
    """Load data into Redis or Valkey as fast as the server takes it, in an event loop.

    As ``fastresp.mass_insert``, with these differences:

    Args:
        data: may also be an async iterable. The loop is blocked no longer than it takes to encode
            one chunk (512 KiB, or 2 ms and one row); columns are encoded in another thread.
        server: may also be a ``redis.asyncio.Redis`` client.
        transport: ``"socket"``; ``"auto"`` is the same here.

    Raises:
        asyncio.CancelledError: the load was cancelled. The connections are closed at once; the
            exception has the report of what was sent and answered until then, as ``report``.
        others: as ``fastresp.mass_insert``.
    """
    if transport not in ("auto", "socket"):
        raise ValueError(f"transport is 'auto' or 'socket' in asyncio, not {transport!r}")
    data = as_source(data)
    if isinstance(data, RespFile):
        await asyncio.to_thread(data.check)  # the whole file is read for it
    policy = ErrorPolicy(on_error, max_errors, rejects, place_of(data))
    template = as_template(template)
    check_spread(data, template, connections)
    where = Server(server)
    where.rehearsal = rehearsal_of(template)
    carrier = AioTransport(
        where,
        policy,
        connections=connections,
        timeout=timeout,
        rate_limit=rate_limit,
        scripts=NO_SCRIPTS if template is None else template.scripts,
    )
    chunks = _Chunks(data, template, nulls=nulls, default=default, rate_limit=rate_limit)
    with closing(chunks), reporting(progress, data) as show, policy:
        async with carrier:
            check_cluster(carrier.answers, carrier.lanes.server, transport)
            assert carrier.answers is not None
            chunks.writer.max_bulk_bytes = carrier.answers.max_bulk_bytes
            chunks.carrier = carrier.lanes
            try:
                while (chunk := await chunks.next()) is not None:
                    await carrier.write(chunk)
                    carrier.report.skipped = chunks.writer.skipped
                    if show is not None:
                        show(carrier.report)
                    if carrier.report.stopped:
                        break
            except TransportError:
                raise
            except LostConnection:
                raise await told(carrier.lanes.loss) from None
            except Exception as error:
                await _write_rest(chunks, carrier, error)
                raise
            finally:
                carrier.report.skipped = chunks.writer.skipped
    return policy.judged(carrier.report)


async def iter_replies(
    data: Data | AsyncIterable[Any],
    template: TemplateLike = None,
    *,
    server: ServerLike = None,
    on_error: Literal["raise", "collect"] = "raise",
    decode: bool | str | None = None,
    nulls: Literal["error", "skip", "empty"] = "error",
    timeout: float | None = 30.0,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
) -> AsyncIterator[Any]:
    """Run commands and yield their replies, in order, as they arrive.

    As ``fastresp.iter_replies``; ``data`` may also be an async iterable, ``server`` a
    ``redis.asyncio.Redis`` client. To leave it before its end, close it: with
    ``contextlib.aclosing()``, or ``aclose()``.
    """
    data = as_source(data)
    if isinstance(data, RespFile):
        await asyncio.to_thread(data.check)
    template = as_template(template)
    core = reply_core(server, on_error, decode, timeout, template, max_reply_bytes)
    chunks = _Chunks(data, template, nulls=nulls, default=default)
    failure: Exception | None = None
    try:
        [connection], answers = await connect(core.server, 1, core.timeout, core.scripts)
        core.attach(connection)
        chunks.writer.max_bulk_bytes = answers.max_bulk_bytes
        chunks.carrier = core
        for item in core.exchange():
            if isinstance(item, Wait):
                assert core.stream is not None
                await wait_for([(core.stream, item)])
            elif isinstance(item, More):
                try:
                    chunk = await chunks.next()
                    made = [] if chunk is None else [chunk]
                except (LostConnection, TransportError):
                    raise
                except Exception as error:
                    # Raised after the replies to the commands before.
                    failure, made = error, chunks.rest()
                core.ended = failure is not None or not made
                for chunk in made:
                    core.window.add(chunk)
                core.touch()
                await asyncio.sleep(0)
            else:
                for reply in item:
                    yield reply
                await asyncio.sleep(0)
        if failure is not None:
            add_report(failure, core.report, str(core.report))
            raise failure
    except LostConnection:
        raise await told(core.loss) from None
    finally:
        core.detach()
        chunks.close()


async def execute(
    *arguments: Any,
    server: ServerLike = None,
    decode: bool | str | None = None,
    timeout: float | None = 30.0,
    max_reply_bytes: int | None = None,
) -> Any:
    """Run one command at once and return its reply, as ``fastresp.execute``."""
    command = one_command(arguments)
    with one_reply():
        replies = iter_replies(
            command,
            server=server,
            decode=decode,
            timeout=timeout,
            max_reply_bytes=max_reply_bytes,
        )
        [reply] = [reply async for reply in replies]
    return reply


def fetch_hashes(
    keys: Keys | AsyncIterable[Any],
    fields: Iterable[str],
    *,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
    batch_rows: int = BATCH_ROWS,
) -> Hashes:
    """Fetch fields of hashes as columns, as ``fastresp.fetch_hashes``, in an event loop.

    ``keys`` may also be an async iterable, ``server`` an asyncio client. What is returned is for
    ``async for``: itself for rows, each a dict, its ``batches()`` for columns.
    """
    checked = [] if isinstance(keys, AsyncIterable) else keys
    hashes = fetch.fetch_hashes(
        checked, fields, server=server, binary=binary, timeout=timeout, batch_rows=batch_rows
    )
    return Hashes(hashes, keys if isinstance(keys, AsyncIterable) else None)


class Hashes:
    """Hashes as columns, read while they are taken: what ``fetch_hashes`` returns.

    Attributes:
        names: of the columns.
    """

    def __init__(self, hashes: fetch.Hashes, keys: AsyncIterable[Any] | None) -> None:
        self.names = hashes.names
        self._hashes = hashes
        self._keys = keys

    @property
    def rows(self) -> int:
        """How many rows have been read, in the last reading."""
        return self._hashes.rows

    @property
    def nbytes(self) -> int:
        """Bytes of replies, likewise."""
        return self._hashes.nbytes

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for row in zip(*batch.columns, strict=True):
                    yield dict(zip(self.names, row, strict=True))

    async def batches(self) -> AsyncGenerator[StringBatch, None]:
        """Yield the batches, each an object with ``__arrow_c_array__``.

        To leave it before its end, close it: with ``contextlib.aclosing()``, or ``aclose()``.
        """
        core, found, keys = self._hashes.begin()
        source = keys if self._keys is None else self._keys
        chunks = _Chunks(
            source if found is None else _scanned(found), core.template, nulls="error", default=None
        )
        try:
            fetch.check_single(chunks.writer)
            [connection], answers = await connect(core.server, 1, core.timeout)
            core.attach(connection)
            chunks.writer.max_bulk_bytes = answers.max_bulk_bytes
            chunks.carrier = core
            for item in core.reading():
                if isinstance(item, Wait):
                    assert core.stream is not None
                    await wait_for([(core.stream, item)])
                elif isinstance(item, More):
                    with fetch.advising():
                        chunk = await chunks.next()
                    core.ended = chunk is None
                    if chunk is not None:
                        core.window.add(chunk)
                    core.touch()
                else:
                    yield self._hashes.counted(item, core, found)
                    core.touch()
        except LostConnection:
            raise await told(core.loss) from None
        finally:
            core.detach()
            chunks.close()


async def _scanned(found: fetch.Found) -> AsyncIterator[bytes]:
    """Yield the keys of a pattern, each page waited for in a thread: redis-py's SCAN blocks."""
    pages = found.pages()
    page: list[bytes] | None = []
    try:
        while page is not None:
            reading = asyncio.ensure_future(asyncio.to_thread(next, pages, None))
            try:
                page = await asyncio.shield(reading)
            except asyncio.CancelledError:
                found.disconnect()  # which ends the reading
                with suppress(Exception):
                    await reading
                raise
            for key in page or ():
                yield key
    finally:
        pages.close()


class _Chunks:
    """The chunks of a source that may be async.

    Attributes:
        writer: what encodes the rows.
        carrier: the connections that they are for. While an async source lets wait for its next
            row, the rows before it go on their way, and replies are read.
    """

    def __init__(
        self,
        data: Data | AsyncIterable[Any],
        template: TemplateLike,
        *,
        nulls: Literal["error", "skip", "empty"],
        default: Callable[[Any], Any] | None,
        rate_limit: float | None = None,
    ) -> None:
        self.writer: Encoder
        self._sync: Iterator[Any] = iter(())
        self._async = None
        if isinstance(data, AsyncIterable):
            self.writer = row_writer(template, nulls=nulls, default=default, rate_limit=rate_limit)
            self._async = aiter(data)
        else:
            self.writer, self._sync = encoding(
                data, template, nulls=nulls, default=default, rate_limit=rate_limit
            )
        self._columns = is_columns(self._sync)
        self.carrier: Lanes | Connection | None = None
        self._rows: list[Any] = []
        self._ready: deque[Chunk] = deque()
        self._failure: Exception | None = None
        self._more = True
        own(self)

    async def next(self) -> Chunk | None:
        """The next chunk; None when there is none.

        Raises:
            TransportError: this is a child of the process that opened the connection. Its event
                loop does not run here, so that nothing can be waited for.
        """
        if not is_own(self):
            raise TransportError(str(Inherited("connection")))
        while self._more and not self._ready:
            if self._async is None:
                if self._columns:
                    # A batch is waited for, as long as it takes, without the loop.
                    self._more = await asyncio.to_thread(self.writer.fill, self._sync)
                else:
                    self._more = self.writer.fill(self._sync)
                self._cut()
            else:
                await self._gather(self._async)
            if not self._ready:
                await asyncio.sleep(0)  # rows that were all left out
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        """Let go of the source."""
        release(self._sync)

    def rest(self) -> list[Chunk]:
        """What an exception has left: the whole commands before it."""
        self._cut()
        return list(self._ready)

    async def _gather(self, source: AsyncIterator[Any]) -> None:
        """Take rows until there is a chunk, or the time for one is up."""
        task = asyncio.current_task()
        assert task is not None
        deadline = time.monotonic() + CHUNK_SECONDS
        loop = asyncio.get_running_loop()
        timer: list[asyncio.TimerHandle] = []

        def pause() -> None:
            self._pause()
            if self._failure is None and not self._stopped:
                timer[:] = [loop.call_later(PAUSE_SECONDS, pause)]
            else:
                task.cancel()  # it waits for the source, which nobody wants any more

        timer[:] = [loop.call_later(PAUSE_SECONDS, pause)]
        try:
            late = False
            while self._more and not self._ready and not late:
                try:
                    async for row in source:
                        self._rows.append(row)
                        late = time.monotonic() >= deadline
                        if late or len(self._rows) >= GATHERED_ROWS:
                            break
                    else:
                        self._more = False
                except Exception:
                    self._encode()  # an error in one of these rows comes before the source's
                    raise
                self._encode()
            self._cut()
        except asyncio.CancelledError:
            if not (self._failure or self._stopped) or task.uncancel() > 0:
                raise
            self._more = False
        finally:
            timer[0].cancel()
        if self._failure is not None:
            self._rows = []
            raise self._failure

    def _encode(self) -> None:
        rows, self._rows = iter(self._rows), []
        while self.writer.fill(rows):
            self._cut()

    def _cut(self) -> None:
        chunk = self.writer.take()
        if chunk is not None:
            self._ready.append(chunk)

    def _pause(self) -> None:
        """Pass on what has come before a pause of the source, and see to what is in flight."""
        carrier = self.carrier
        assert carrier is not None
        try:
            self._encode()
        except Exception as error:
            self._failure = error
        self._cut()
        try:
            while self._ready and carrier.has_room:
                carrier.add(self._ready.popleft())
            carrier.tend()
        except Exception as error:
            self._failure = self._failure or error

    @property
    def _stopped(self) -> bool:
        """Whether nothing more is wanted, as after too many errors."""
        return self.carrier is not None and bool(self.carrier.report.stopped)


async def _write_rest(chunks: _Chunks, carrier: AioTransport, error: Exception) -> None:
    """Send the whole commands before an error."""
    try:
        for chunk in chunks.rest():
            await carrier.write(chunk)
    except TransportError as second:
        error.add_note(f"fastresp: {second}")
