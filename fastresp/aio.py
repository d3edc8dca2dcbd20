"""The public functions and ``ListBuffer`` for asyncio, with the same implementation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from inspect import CO_ASYNC_GENERATOR
from types import TracebackType
from typing import Any, Literal, Self
from weakref import ref

from .encode.columns.arrow_out import StringBatch
from .encode.template import TemplateLike, as_template
from .lists.async_buffer import ListBuffer
from .load.copying.copy import CopySource, copying
from .load.copying.options import CopyOptions, Delete
from .load.loader import BaseLoader, raised_in_block
from .load.mass_insert import loading
from .load.verifying import verify as of_verify
from .load.verifying.reading import AsyncReadChunks, ReadChunks
from .load.verifying.report import DifferenceTarget, VerifyReport
from .outcome.errors import TransportError
from .outcome.report import Report
from .outcome.tracebacks import public, shorten
from .replies import fetch_hashes as fetch
from .replies.fetch_hashes import BATCH_ROWS, Keys
from .replies.iter_replies import one_command, one_reply, reply_core, replying
from .replies.key_pattern import KeyFinder
from .server.options import (
    Checkpoint,
    Durable,
    MaxErrors,
    Metrics,
    Mirror,
    Mode,
    Nulls,
    Options,
    Progress,
    RateLimit,
    ReceiptPath,
    Rejects,
    arguments_of,
)
from .server.preflight import Requirements
from .server.settings import Server, ServerLike
from .sources.chunks import AsyncChunks, Chunks
from .sources.source import Data, as_source
from .transports.aio import PAUSE_SECONDS, answer, run, stream
from .transports.driver import Blocking
from .transports.socket import SocketTransport

__all__ = [
    "Hashes",
    "ListBuffer",
    "Loader",
    "copy",
    "execute",
    "fetch_hashes",
    "iter_replies",
    "loader",
    "mass_insert",
    "verify",
]


@public
async def mass_insert(
    data: Data | AsyncIterable[Any],
    template: TemplateLike = None,
    server: ServerLike = None,
    *,
    transport: Literal["auto", "socket"] = "auto",
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: RateLimit = None,
    connections: int = 1,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
    mode: Mode = "commands",
    retry: Literal["never", "idempotent", "always"] | None = None,
    durable: Durable = "acknowledged",
    checkpoint: str | Checkpoint | None = None,
    metrics: Metrics = None,
    receipt: ReceiptPath = None,
    lineage: bool = False,
    import_source: bool = False,
    wait_index: bool = False,
    index_backlog: int | None = None,
    pause_saves: bool = False,
    mirror: str | Mirror | None = None,
) -> Report:
    """Load data into Redis or Valkey from an event loop.

    Like ``fastresp.mass_insert``, except for:

    Args:
        data: may also be an async iterable. Encoding blocks the event loop for at most one chunk
            (512 KiB, or 2 ms plus one row); columns are encoded in another thread.
        server: may also be a ``redis.asyncio.Redis`` client.
        transport: ``"socket"`` or ``"auto"``, which both mean the socket.

    Raises:
        asyncio.CancelledError: the load was cancelled. The connections were closed immediately;
            the exception's ``report`` counts the commands sent and answered until then.
        others: as in ``fastresp.mass_insert``.
    """
    check_transport(transport)
    options = Options.of(locals())
    return await run(loading(_chunks(data, template, options), choose))


# Creates the transport of a load.
choose = partial(SocketTransport, in_event_loop=True)


def check_transport(transport: str) -> None:
    if transport not in ("auto", "socket"):
        raise ValueError(f"transport must be 'auto' or 'socket' in asyncio, not {transport!r}")


def _chunks(data: Data | AsyncIterable[Any], template: TemplateLike, options: Options) -> Chunks:
    """Return the chunks of a source, which may be an async iterable."""
    template = as_template(template)
    data = as_source(data, template)
    kind = AsyncChunks if isinstance(data, AsyncIterable) else Chunks
    return kind(data, template, options)


CANCELLED = (
    "the load was cancelled when a write() or flush() was cancelled, for example by a timeout or "
    "with its task; rows may be lost"
)


class Loader(BaseLoader):
    """Load rows that are written one at a time; returned by ``loader``.

    Use it in an ``async with`` statement; see ``fastresp.Loader``. Several tasks may write. If no
    more rows are written, the last rows are sent after at most 20 ms.

    If the block or a call is cancelled, the load ends for all tasks: the connections are closed
    immediately, and the CancelledError has the report as its ``report`` attribute. A timeout around
    ``write()`` also counts as a cancellation: if the block catches the TimeoutError and ends
    normally, a TransportError is raised.
    """

    def __init__(self, template: TemplateLike, options: Options) -> None:
        super().__init__(template, options, choose)
        self._lock = asyncio.Lock()

    async def write(self, row: Any) -> None:
        """Write a row; see ``fastresp.Loader.write``."""
        if self._lock.locked():
            await self._call(partial(self._put, row))
            return
        try:  # encode outside the lock: locking takes as much time as encoding
            due = self._put(row)
        except BaseException as error:
            shorten(error)
            raise
        if due:
            await self._call(self._is_open)

    async def flush(self) -> None:
        """Send all rows written so far, and wait for the replies; see ``fastresp.Loader.flush``."""
        await self._call(self._flush)

    async def __aenter__(self) -> Self:
        await self._call(partial(self._begin, stream))
        send_in_pauses(ref(self))
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cause = error
        # An async generator can await while it is closed; a coroutine can't.
        flags = 0 if trace is None else trace.tb_frame.f_code.co_flags
        if isinstance(error, GeneratorExit) and flags & CO_ASYNC_GENERATOR:
            cause = RuntimeError("the generator was closed")
            cause.__cause__ = error
        with raised_in_block(error, trace):
            await self._call(partial(self._close, cause))

    def _close(self, error: BaseException | None) -> bool:
        ended = self._error if error is None and self._state == "ended" else None
        task = asyncio.current_task()
        if isinstance(ended, asyncio.CancelledError) and task is not None and not task.cancelling():
            # If this task raised the CancelledError, asyncio would treat the task as cancelled,
            # although nobody cancelled it.
            raise TransportError(CANCELLED, self.report) from ended
        return super()._close(error)

    def _send_rows(self) -> bool:
        """Send rows if no call is waiting; return whether there may be more rows later."""
        if self._state == "open":
            self._load.send_rows()
        return self._state in ("open", "running")

    async def _call(self, prepare: Callable[[], bool]) -> None:
        try:
            async with self._lock:
                if prepare():
                    with self._running():
                        await anext(self._steps)
        except BaseException as error:
            shorten(error)
            raise


def send_in_pauses(loader: ref[Loader]) -> None:
    """Send the rows of a loader every PAUSE_SECONDS, until the loader ends or is dropped."""
    found = loader()
    if found is not None and found._send_rows():
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, send_in_pauses, loader)


@public
def loader(
    template: TemplateLike = None,
    server: ServerLike = None,
    *,
    transport: Literal["auto", "socket"] = "auto",
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: RateLimit = None,
    connections: int = 1,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
    mode: Mode = "commands",
    retry: Literal["never", "idempotent", "always"] | None = None,
    durable: Durable = "acknowledged",
    checkpoint: str | Checkpoint | None = None,
    metrics: Metrics = None,
    receipt: ReceiptPath = None,
    lineage: bool = False,
    import_source: bool = False,
    wait_index: bool = False,
    index_backlog: int | None = None,
    pause_saves: bool = False,
) -> Loader:
    """Load rows that are written one at a time, from an event loop.

    Like ``fastresp.loader``, with ``async with`` and ``await load.write(row)``. ``server`` may also
    be a ``redis.asyncio.Redis`` client.
    """
    check_transport(transport)
    return Loader(template, Options.of(locals()))


@public
async def copy(
    source: CopySource,
    target: ServerLike = None,
    *,
    match: str | None = None,
    type: str | None = None,  # noqa: A002
    db: int | None = None,
    exists: Literal["error", "skip", "replace"] = "error",
    rename: str | None = None,
    field_ttl: Literal["keep", "drop"] = "keep",
    from_replica: bool = False,
    follow: bool = False,
    until_lag: int | None = None,
    dry_run: bool = False,
    changed: bool = False,
    delete: Delete = False,
    verify: bool = False,
    sample: str | float | None = None,
    differences: DifferenceTarget = None,
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: RateLimit = None,
    connections: int = 1,
    max_payload_bytes: int | None = None,
    timeout: float | None = 30.0,
    progress: Progress = None,
    retry: Literal["never", "idempotent", "always"] | None = None,
    durable: Durable = "acknowledged",
    import_source: bool = False,
    pause_saves: bool = False,
    checkpoint: str | Checkpoint | None = None,
    receipt: ReceiptPath = None,
) -> Report:
    """Copy keys to another server, from an event loop; see ``fastresp.copy``.

    ``source`` and ``target`` may also be ``redis.asyncio.Redis`` clients. A thread reads the
    source; a cancellation closes the connections to the target immediately.

    With ``follow``, a cancellation ends the copy after a whole command; with a checkpoint, the
    offset of this command is stored. The CancelledError has the report as its ``report`` attribute.
    A thread applies the commands, and calls ``progress``.
    """
    return await run(copying(source, CopyOptions.of(locals()), choose))


@public
async def verify(
    data: Data | AsyncIterable[Any] | None = None,
    template: TemplateLike = None,
    server: ServerLike = None,
    *,
    sample: str | float | None = None,
    seed: int = 0,
    exact: bool = False,
    mirror: str | None = None,
    differences: DifferenceTarget = None,
    repair: bool = False,
    max_differences: int = of_verify.MAX_DIFFERENCES,
    since: float | None = None,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: of_verify.Progress = None,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
    receipt: str | os.PathLike[str] | None = None,
    lineage: bool = False,
) -> VerifyReport:
    """Compare the data in a server with its source, from an event loop.

    Like ``fastresp.verify``; ``data`` may also be an async iterable, and ``server`` a
    ``redis.asyncio.Redis`` client.
    """
    given = of_verify.with_receipt(locals())
    found = arguments_of(of_verify.VerifyOptions, given)
    verify_options = of_verify.VerifyOptions(**found, in_event_loop=True)
    template = as_template(given["template"])
    data = as_source(given["data"], template)
    kind = AsyncReadChunks if isinstance(data, AsyncIterable) else ReadChunks
    options = Options(nulls=given["nulls"], timeout=timeout, default=default)
    return await run(of_verify.verify_core(kind(data, template, options), verify_options))


@public
def iter_replies(
    data: Data | AsyncIterable[Any],
    template: TemplateLike = None,
    server: ServerLike | Server = None,
    *,
    on_error: Literal["raise", "collect"] = "raise",
    decode: bool | str | None = None,
    nulls: Nulls = "error",
    timeout: float | None = 30.0,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
) -> AsyncIterator[Any]:
    """Run commands, and yield each reply as it arrives, in the order of the commands.

    Like ``fastresp.iter_replies``; ``data`` may also be an async iterable, and ``server`` a
    ``redis.asyncio.Redis`` client. To stop early, close the iterator with
    ``contextlib.aclosing()`` or ``aclose()``.
    """
    template = as_template(template)
    options = Options.of(locals())
    core = reply_core(options, decode, template, max_reply_bytes)
    return stream(replying(core, _chunks(data, template, options)))


@public
async def execute(
    *arguments: Any,
    server: ServerLike = None,
    decode: bool | str | None = None,
    timeout: float | None = 30.0,
    max_reply_bytes: int | None = None,
) -> Any:
    """Run one command and return its reply; see ``fastresp.execute``."""
    command = one_command(arguments)
    with one_reply():
        replies = iter_replies(
            command,
            server=Server(server, Requirements(follow_redirects=True)),
            decode=decode,
            timeout=timeout,
            max_reply_bytes=max_reply_bytes,
        )
        [reply] = [reply async for reply in replies]
    return reply


@public
def fetch_hashes(
    keys: Keys | AsyncIterable[Any],
    fields: Iterable[str],
    *,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
    batch_rows: int = BATCH_ROWS,
    max_reply_bytes: int | None = None,
    slots: range | None = None,
) -> Hashes:
    """Fetch fields of hashes as columns, from an event loop; see ``fastresp.fetch_hashes``.

    ``keys`` may also be an async iterable, and ``server`` a ``redis.asyncio.Redis`` client. Iterate
    with ``async for`` over the result for rows (dicts), or over its ``batches()`` for columns.
    """
    checked = [] if isinstance(keys, AsyncIterable) else keys
    hashes = fetch.fetch_hashes(
        checked,
        fields,
        server=server,
        binary=binary,
        timeout=timeout,
        batch_rows=batch_rows,
        max_reply_bytes=max_reply_bytes,
        slots=slots,
    )
    return Hashes(hashes, keys if isinstance(keys, AsyncIterable) else None)


class Hashes:
    """Fetches hashes as columns while you iterate; returned by ``fetch_hashes``.

    Attributes:
        names: names of the columns.
    """

    def __init__(self, hashes: fetch.Hashes, keys: AsyncIterable[Any] | None) -> None:
        self.names = hashes.names
        self._hashes = hashes
        self._keys = keys

    def __repr__(self) -> str:
        return f"<fastresp.aio.Hashes of {', '.join(self.names)}>"

    @property
    def rows(self) -> int:
        """Number of rows read so far in the current iteration, or in the previous one."""
        return self._hashes.rows

    @property
    def nbytes(self) -> int:
        """Number of reply bytes read so far in the current iteration, or in the previous one."""
        return self._hashes.nbytes

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for row in zip(*batch.columns, strict=True):
                    yield dict(zip(self.names, row, strict=True))

    async def batches(self) -> AsyncGenerator[StringBatch, None]:
        """Yield batches of columns: objects with ``__arrow_c_array__``.

        To stop early, close the iterator with ``contextlib.aclosing()`` or ``aclose()``.
        """
        core, keys = self._hashes.begin()
        source = keys if self._keys is None else self._keys
        async with AsyncExitStack() as stack:
            if core.finder is not None:
                source = await stack.enter_async_context(aclosing(_scanned(core.finder)))
            kind = AsyncChunks if isinstance(source, AsyncIterable) else Chunks
            fetching = stream(core.fetching(source, kind))
            async for batch in await stack.enter_async_context(aclosing(fetching)):
                self._hashes.count(batch, core)
                yield batch


async def _scanned(found: KeyFinder) -> AsyncGenerator[bytes, None]:
    """Yield the keys that match a pattern. A thread reads them, since redis-py blocks."""
    pages = found.pages()
    page: list[bytes] | None = []
    try:
        while page is not None:
            for key in page:
                yield key
            page = await answer(Blocking(partial(next, pages, None), found.disconnect))
    finally:
        pages.close()
