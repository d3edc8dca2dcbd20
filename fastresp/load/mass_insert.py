"""``mass_insert()``: encode a source, and send it."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any, Literal, TypeAlias

from ..encode.row_key import RowKeys
from ..encode.script import resending_of
from ..encode.template import Template, TemplateLike, as_template
from ..outcome.report import Report
from ..outcome.tracebacks import public
from ..server.options import FSYNC, MaxErrors, Metrics, Nulls, Options, Progress, Rejects
from ..server.rate import RateLimit
from ..server.rehearsal import RESTORE, over_any_keys
from ..server.settings import Server, ServerLike, as_server
from ..sources.chunks import Chunks
from ..sources.pushed import Pushed
from ..sources.source import Data, Encoder, as_source, place_of
from ..transports.base import Transport, add_report
from ..transports.choice import choose
from ..transports.connection import LostConnection
from ..transports.driver import Asking, Steps, next_chunk, open_source, run
from ..transports.error_policy import ErrorPolicy
from ..transports.locating import locating
from ..transports.resend import Resending
from .command_names import check_connection_state, check_spread, command_names
from .indexing import Indexing
from .observers import observers
from .progress import reporting
from .resuming import Resuming
from .watching import Watch

__all__ = ["loading", "mass_insert"]

# Returns the transport for a load: see choose().
Choose: TypeAlias = Callable[[Options, Server, ErrorPolicy, Resending | None], Transport]


@public
def mass_insert(
    data: Data,
    template: TemplateLike = None,
    *,
    server: ServerLike = None,
    transport: Literal["auto", "redis-cli", "socket"] = "auto",
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: RateLimit = None,
    connections: int = 1,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
    mode: Literal["commands", "merge", "serialize"] = "commands",
    merge_items: int | None = None,
    merge_bytes: int | None = None,
    exists: Literal["error", "replace", "skip"] = "error",
    max_payload_bytes: int | None = None,
    retry: Literal["never", "idempotent", "always"] | None = None,
    wait_replicas: int = 0,
    durable: Literal["acknowledged", "fsync"] | int = "acknowledged",
    checkpoint: str | None = None,
    resume: bool = False,
    take_over: bool = False,
    checkpoint_clear: bool = False,
    source_id: str | None = None,
    metrics: Metrics = None,
    import_source: bool = False,
    wait_index: bool = False,
    index_backlog: int | None = None,
) -> Report:
    """Load data into Redis or Valkey as fast as the server accepts it.

    Args:
        data: one of:

            - an iterable of rows for a template (dicts, tuples, objects with named fields, single
              values) or of commands (lists or tuples of arguments). It is read once, never held
              in memory.
            - columns: an object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pandas or
              polars DataFrame, pyarrow table or reader, DuckDB relation), a list of these, a
              pyarrow Dataset or Scanner, a polars LazyFrame, or the result of pandas'
              ``read_csv(chunksize=)``. Columns are never turned into Python objects.
            - a path, a list of Path objects, or a query: see ``read``.
        template: a command template such as ``"HSET user:{id} {**}"``, a Template, the result of
            ``Script.command()``, a list of these, or None if ``data`` is commands.
        server: a URL (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``), a
            redis-py or valkey-py client, or None for the environment variable ``REDIS_URL``, else
            localhost.
        transport: ``"redis-cli"``: a ``redis-cli --pipe`` process; ``"socket"``: fastresp's own
            connection, which knows the row of each error; ``"auto"`` is the socket.
        on_error: ``"raise"`` raises at the end if there were error replies; ``"collect"`` only
            reports them; ``"stop"`` stops the load at the first one (commands in flight still
            run). redis-cli does not see errors inside a reply, such as EXEC's. A reply such as OOM,
            BUSY or READONLY stops a load to one server in any case, unless ``retry`` or
            ``max_errors`` is given.
        max_errors: stop when more commands than this have failed: a number, or a percentage of
            the replies such as ``"1%"`` (checked from the 100th reply on).
        rejects: where failed commands go as they happen: the path of a JSON lines file, which
            ``read_rejects()`` reads back, or a callable that is called with each CommandError.
        rate_limit: send at most this many commands per second; or, as a text such as ``"50MB"``,
            ``"800KB"`` or ``"64MiB"``, bytes per second. For all connections together.
        connections: number of connections, 1 to 64. With more than one, the socket is used, and
            only the commands of a key stay in order; if a command has several, its first key
            counts. This helps if one connection is the limit: high latency, or a server with
            several I/O threads. In a cluster, the number of connections to each primary.
        nulls: what to do with None, or a key missing from a dict. ``"auto"`` leaves out the field
            in a field-value pair of ``{**}``, and raises anywhere else, as in a key or a score.
            ``"skip"`` leaves out the field-value pair, item or command; ``"empty"`` sends an empty
            string; ``"error"`` raises. A field that is left out keeps the value of an earlier load:
            ``"delete"`` is ``"auto"`` with an HDEL of these fields after the row's HSET. To replace
            whole keys, use ``mode="serialize", exists="replace"``.
        timeout: give up after this many seconds without progress; None to wait forever.
        progress: True for a progress bar on the terminal, or a callable that is called with the
            Report so far.
        default: a function that converts any object other than str, bytes, int, float or buffer
            into one of the first four. Without it, Decimal, date, time and UUID objects are sent
            as the text that ``pack`` returns for them, and all others are errors. It is not called
            for None, nor for columns, which contain no Python objects.
        mode: ``"commands"`` sends the commands as they are. ``"merge"`` sends adjacent commands
            as one where this changes neither the data nor the report: several RPUSH on one key
            become one, and several SET an MSET. ``"serialize"`` makes whole new keys: it writes the
            value of adjacent HSET, RPUSH, LPUSH, SADD or ZADD commands of one key, with an
            EXPIRE or PEXPIRE of it, as the server stores it, and sends it with RESTORE.
        merge_items: a merged command has at most this many items (elements, members, field-value
            pairs, keys); None for 1,000. With a rate limit, at most the commands of 10 ms.
        merge_bytes: and at most this many bytes; None for 65,536. The server serves nobody else
            while it runs a command, so larger ones delay other clients.
        exists: what ``"serialize"`` does with a key that exists: ``"error"`` leaves it, and its
            commands fail with BUSYKEY; ``"skip"`` leaves it, too, and counts them in the report's
            ``existing``; ``"replace"`` replaces it.
        max_payload_bytes: a key whose items have more bytes is begun with RESTORE and continued
            with merged commands; None for 33,554,432 (32 MiB). Gathering a key needs up to about
            eight times as much memory.
        retry: which commands to send again if their connection was lost before they were answered,
            so that they may have run: ``"never"``; ``"idempotent"``: those that change nothing more
            if they run twice, such as SET, HSET, SADD, ZADD and DEL, but not RPUSH or INCR; or
            ``"always"``. The others are in doubt, and the load continues. None for ``"idempotent"``
            in a cluster; for one server, a lost connection ends the load unless this is given. A
            server or its successor is waited for up to ``timeout`` seconds. So is one that refuses
            commands because of its state, such as OOM, BUSY or READONLY: they have not run.
        wait_replicas: the same as a number for ``durable``.
        durable: when commands count as acknowledged: ``"acknowledged"``, when the server has
            answered; ``"fsync"``, when it has also synced its append-only file (WAITAOF: Redis 7.2
            and later, Valkey), so that they survive a crash; or a number, when this many replicas
            have them (WAIT), so that they survive a failover. The report counts them as
            ``durable``; what is not confirmed is in doubt. A checkpoint waits for it, too.
        checkpoint: a name under which the server keeps how far the load has come, so that it can go
            on there after any failure: no row is lost, and none runs twice. Commands that may run
            twice, such as SET or HSET, may be sent again; all others are sent in transactions. For
            a template, and a source that can be read again.
        resume: resume at the checkpoint, if there is one. Without it, there may be none.
        take_over: as ``resume``, also if another loader is at work, which is then cut off.
        checkpoint_clear: forget the checkpoint, and begin with the first row.
        source_id: for a source that can be read only once: what it is, such as a date. You promise
            that it yields the same rows in the same order.
        metrics: the path of a file that is replaced once a second, and at the end, or a callable
            that is called with its text: counters and gauges of the load in the OpenMetrics format.
            Another file than one of metrics is not replaced.
            Needs ``pip install 'fastresp[metrics]'``.
        import_source: for a copy of a server that is still written to: keys that have expired are
            there for this load until the import ends (CLIENT IMPORT-SOURCE). Needs Valkey 8.1 with
            ``import-mode yes``.
        wait_index: at the end, wait until the search indexes that cover the keys have indexed all
            of them; not if the load was stopped.
        index_backlog: pause while more than about this many documents are not indexed yet.

    Returns:
        The report: commands, replies, error replies, bytes, rates.

    Raises:
        CheckpointError: the load can't begin, or resume at its checkpoint (nothing was sent).
        CommandError: the server refuses a script, does not know a command of the template, or
            does not accept that number of arguments (nothing was sent).
        LoadErrors: the server answered a command with an error; the load ran to its end, or
            was stopped by ``on_error="stop"`` or ``max_errors``.
        EncodeError: a value can't be encoded, or is larger than the server accepts, or a command
            can't be serialised. The rows before it were loaded, but in mode ``"serialize"`` not
            those of the same key.
        TemplateError: the template is invalid, a row lacks a field that it names, or a column has
            a type that the template can't send.
        TransportError: the server can't be used, the user may not run a command of the template
            (nothing was sent), or the connection was lost; at the end, if commands are in doubt
            that ``retry`` does not send again, or if a server came back and may have lost data, and
            ``on_error`` is not ``"collect"``.
        TransportTimeout: no progress for ``timeout`` seconds.
        TypeError: the data is not an iterable of rows, or is columns and ``default`` was given.
        SourceError: the source of the columns failed.
        OSError: the rejects file can't be opened (nothing was sent) or written, or the file of
            metrics can't be written (nothing was sent; if it happens later, that is only logged).

        KeyboardInterrupt and the source's exceptions propagate unchanged, after the commands
        before them were loaded. An exception during the load has the report so far as its
        ``report`` attribute; exceptions of other packages also have it as a note.

    Thread-safe: each call opens its own connections.
    """
    options = Options(
        server=server,
        transport=transport,
        on_error=on_error,
        max_errors=max_errors,
        rejects=rejects,
        rate_limit=rate_limit,
        connections=connections,
        nulls=nulls,
        timeout=timeout,
        progress=progress,
        default=default,
        mode=mode,
        merge_items=merge_items,
        merge_bytes=merge_bytes,
        exists=exists,
        max_payload_bytes=max_payload_bytes,
        retry=retry,
        wait_replicas=wait_replicas,
        durable=durable,
        checkpoint=checkpoint,
        resume=resume,
        take_over=take_over,
        checkpoint_clear=checkpoint_clear,
        source_id=source_id,
        metrics=metrics,
        import_source=import_source,
        wait_index=wait_index,
        index_backlog=index_backlog,
    )
    template = as_template(template)
    return run(loading(Chunks(as_source(data, template), template, options), choose))


def loading(chunks: Chunks, choose: Choose) -> Steps[Report]:
    """Run a load without waiting itself: yield whatever the driver has to wait for.

    Args:
        chunks: the source; closed at the end.
        choose: returns the transport.
    """
    try:
        looking = observers(chunks)
    except BaseException:
        chunks.close()
        raise
    watch, resuming = Watch(looking), Resuming(chunks)
    steps = resuming.over(_loading(chunks, choose, watch, resuming))
    return watch.over(steps) if looking else steps


def _loading(chunks: Chunks, choose: Choose, watch: Watch, resuming: Resuming) -> Steps[Report]:
    """Do what ``loading()`` does, while it is watched."""
    data, template, options = chunks.data, chunks.template, chunks.options
    policy = ErrorPolicy(
        options.on_error, options.max_errors, options.rejects, place_of(data), RowKeys(template)
    )
    with closing(chunks), Indexing(template, options) as indexing:
        watch.row = resuming.reached
        watch.begin()
        try:
            # This may read a whole RESP file.
            yield Asking(partial(check_spread, data, template, options.connections), chunks.blocks)
            yield from resuming.claiming()
            if resuming.ended:
                return policy.judged(resuming.report)
            policy.keeps = resuming.keeps
            yield from open_source(chunks)
        except CancelledError as cancellation:
            nothing = Report("socket")
            add_report(cancellation, nothing, str(nothing))
            raise
        except Exception as error:
            yield from locating(data, [error])
            raise
        with reporting(options.progress, data) as show, policy:
            server = _server_of(template, options)
            carrier = choose(options, server, policy, resending_of(template))
            watch.carrier = carrier
            resuming.prepare(carrier)
            if template is not None:
                carrier.transactions = "MULTI" in (command_names(data, template) or ("MULTI",))
            yield from carrier.opening()
            try:
                check_connection_state(data, template, options, carrier.answers)
                chunks.adapt(carrier.answers)
                yield from indexing.beginning(server, carrier)
                yield from resuming.registering()
            except BaseException:
                carrier.kill()
                raise
            try:
                yield from _sending(chunks, carrier, show, resuming, indexing)
                yield from carrier.closing()
                yield from resuming.finishing()
                yield from locating(data, carrier.report.errors)
                if show is not None:
                    show(carrier.report)
            except BaseException as error:
                following = partial(_following_at_the_end, chunks, carrier)
                found = partial(_locating_at_the_end, data, carrier, error)
                yield from carrier.ending_after(error, chunks.rest, following, found)
                raise
            finally:
                _count_nulls(carrier.report, chunks.writer)
            yield from indexing.ending(show)
    report = carrier.report
    if chunks.writer.skipped and not report.stopped:
        report.rows = max(report.rows, chunks.writer.rows - chunks.start_row)
    return policy.judged(report)


def _server_of(template: Template | None, options: Options) -> Server:
    """Return the settings of the server, with what a load asks it for."""
    server = as_server(options.server, template, nodes=True).changed(
        fsync=options.durability == FSYNC,
        import_source=options.import_source,
        indexes=template is not None,
    )
    if options.mode == "merge":
        return server.changed(wishes=partial(over_any_keys, template))
    if options.mode == "serialize":
        return server.changed(limits=True, rehearsal=[*server.rehearsal, RESTORE])
    return server


def _count_nulls(report: Report, writer: Encoder) -> None:
    report.skipped, report.nulls_skipped = writer.skipped, writer.nulls_skipped


def _sending(
    chunks: Chunks,
    carrier: Transport,
    show: Callable[[Report], object] | None,
    resuming: Resuming,
    indexing: Indexing,
) -> Steps[None]:
    """Send chunk after chunk until the source ends or the load is stopped."""
    drain = partial(_draining, chunks, carrier, show)
    meanwhile = partial(_pausing, carrier, show, resuming)
    if isinstance(chunks.data, Pushed):
        chunks.data.pausing = partial(_tending, carrier, resuming)
        chunks.data.waiting = lambda: run(resuming.renewing())
    while not carrier.so_far.stopped:
        try:
            chunk = yield from next_chunk(chunks, indexing.gate(carrier.lanes))
        except LostConnection:  # noticed while waiting for an async source
            raise (yield from carrier.losing()) from None
        if chunk is None and chunks.waits:
            yield from carrier.settling()
            yield from _following(chunks, carrier, show)
            continue
        if chunk is not None:
            yield from indexing.holding(chunk, drain, meanwhile)
            yield from carrier.writing(chunk)
        yield from _following(chunks, carrier, show, end=chunk is None)
        if chunk is None:
            break
        _count_nulls(carrier.so_far, chunks.writer)
        yield from resuming.renewing()
        if resuming.levels:
            yield from _levelling(chunks, carrier, show, resuming)
        if show is not None:
            show(carrier.report)


def _tending(carrier: Transport, resuming: Resuming) -> None:
    """Send, receive, and renew the lease, while a source that others push pauses."""
    # What is raised here is raised again when the load is resumed; Arrow would lose its type.
    with suppress(Exception):
        assert carrier.lanes is not None
        carrier.lanes.tend()
        run(resuming.renewing())


def _levelling(
    chunks: Chunks,
    carrier: Transport,
    show: Callable[[Report], object] | None,
    resuming: Resuming,
) -> Steps[None]:
    """Wait until all that was made is answered, and write down the row."""
    for chunk in chunks.made():
        yield from carrier.writing(chunk)
    yield from _draining(chunks, carrier, show)
    if not (carrier.so_far.stopped or chunks.refused):
        yield from resuming.levelling()


def _draining(
    chunks: Chunks, carrier: Transport, show: Callable[[Report], object] | None
) -> Steps[None]:
    """Wait until all that was sent is answered."""
    yield from _following(chunks, carrier, show, end=True)
    yield from carrier.finishing()


def _pausing(
    carrier: Transport, show: Callable[[Report], object] | None, resuming: Resuming
) -> Steps[None]:
    """Do what is due while nothing is sent."""
    yield from resuming.renewing()
    if show is not None:
        show(carrier.report)


def _following(
    chunks: Chunks,
    carrier: Transport,
    show: Callable[[Report], object] | None = None,
    *,
    end: bool = False,
) -> Steps[None]:
    """Send the commands again that nodes refused, or did not answer before they were lost.

    What was made for the old nodes is sent together with them, so that no command overtakes an
    earlier one of its key.

    Args:
        end: whether to continue until all is answered.
    """
    lanes = carrier.lanes
    if carrier.retries is None or lanes is None:
        return
    if end:
        yield from carrier.draining()
    while (lanes.unsettled if end else lanes.due) and not carrier.so_far.stopped:
        if (yield from carrier.preparing()):
            chunks.remap(carrier.moving(chunks.made()))
        if end or lanes.asking:
            yield from carrier.draining()
        if show is not None:
            show(carrier.report)


def _locating_at_the_end(data: Any, carrier: Transport, error: BaseException) -> Steps[None]:
    """After an exception, find the places of the rows that failed."""
    yield from locating(data, [*carrier.report.errors, error])


def _following_at_the_end(chunks: Chunks, carrier: Transport) -> Steps[None]:
    """After an exception of the source, do what ``_following()`` does for all that was sent."""
    chunks.forget()
    yield from _following(chunks, carrier, end=True)
