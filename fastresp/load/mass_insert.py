"""``mass_insert()``: encode a source and send it."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

from ..encode.row_key import RowKeys
from ..encode.script import resending_of
from ..encode.template import Template, TemplateLike, as_template
from ..outcome.report import Report
from ..outcome.tracebacks import public
from ..server.options import FSYNC, MaxErrors, Metrics, Nulls, Options, Progress, RateLimit, Rejects
from ..server.preflight import RESTORE, Requirements, commands_over_any_keys
from ..server.settings import Server, ServerLike, as_server
from ..sources.chunks import Chunks
from ..sources.pushed import Pushed
from ..sources.source import Data, Encoder, as_source, place_of
from ..transports.base import Transport, add_report
from ..transports.choice import choose
from ..transports.connection import LostConnection
from ..transports.driver import Pull, Steps, next_chunk, open_source, run
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

# Returns the transport of a load; see choose().
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
              values) or of commands (lists or tuples of arguments). It is iterated once and never
              loaded into memory as a whole.
            - columns: an object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pandas or
              polars DataFrame, pyarrow table or reader, DuckDB relation), a list of such objects, a
              pyarrow Dataset or Scanner, a polars LazyFrame, or the result of pandas'
              ``read_csv(chunksize=)``. Values of columns never become Python objects.
            - a path, a list of Path objects, or a query: see ``read``.
        template: a command template such as ``"HSET user:{id} {**}"``, a Template, the result of
            ``Script.command()``, a list of templates, or None if ``data`` is commands.
        server: a URL (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``), a
            redis-py or valkey-py client, or None for the environment variable ``REDIS_URL`` or, if
            it is not set, localhost.
        transport: ``"socket"``: fastresp's own connection, which knows the row of each error;
            ``"redis-cli"``: a ``redis-cli --pipe`` process; ``"auto"``: the socket.
        on_error: ``"raise"`` raises LoadErrors at the end if the server returned error replies;
            ``"collect"`` only reports them; ``"stop"`` stops the load at the first error reply
            (commands in flight still run). redis-cli does not see errors nested in a reply, such as
            EXEC's. A reply such as OOM, BUSY or READONLY always stops a load to a single server,
            unless ``retry`` or ``max_errors`` is given.
        max_errors: stop when more commands than this have failed: a number, or a percentage of
            the replies such as ``"1%"`` (checked once there are 100 replies).
        rejects: where to write failed commands during the load: the path of a JSON Lines file,
            which ``read_rejects()`` reads, or a callable that receives each CommandError.
        rate_limit: maximum rate of all connections together: commands per second, or bytes per
            second as a text such as ``"50MB"``, ``"800KB"`` or ``"64MiB"``.
        connections: number of connections, 1 to 64; in a cluster, to each primary. More than one
            needs the socket, and keeps only commands with the same first key in order. Helps if one
            connection is the bottleneck: high latency, or a server with several I/O threads.
        nulls: what to do with None, or a key missing from a dict. ``"auto"`` omits the field
            of a field-value pair of ``{**}``, and raises anywhere else, such as in a key or score.
            ``"skip"`` omits the field-value pair, item or command; ``"empty"`` sends an empty
            string; ``"error"`` raises. An omitted field keeps the value of an earlier load:
            ``"delete"`` is ``"auto"`` plus an HDEL of the omitted fields after the row's HSET. To
            replace whole keys, use ``mode="serialize", exists="replace"``.
        timeout: give up after this many seconds without progress; None to wait forever.
        progress: True for a progress bar on the terminal, or a callable that receives the live
            Report.
        default: a function that converts any object other than str, bytes, int, float or buffer
            to a str, bytes, int or float. By default, Decimal, date, time and UUID objects are sent
            as the text that ``pack`` returns for them, and all others are errors. Not called for
            None or for columns, which contain no Python objects.
        mode: ``"commands"`` sends the commands unchanged. ``"merge"`` combines adjacent commands
            if that changes neither the data nor the report: RPUSH commands of one key become one,
            and SET commands become an MSET. ``"serialize"`` creates whole keys: it encodes adjacent
            HSET, RPUSH, LPUSH, SADD or ZADD commands of one key, and its EXPIRE or PEXPIRE, in the
            server's storage format, and sends the value with RESTORE.
        merge_items: maximum items (elements, members, field-value pairs, keys) of a merged command;
            None for 1,000. With a rate limit, at most the commands of 10 ms.
        merge_bytes: maximum bytes of a merged command; None for 65,536. Other clients wait while
            the server runs a command, so larger commands delay those clients.
        exists: what ``"serialize"`` does with a key that exists: ``"error"`` keeps it, and its
            commands fail with BUSYKEY; ``"skip"`` keeps the key, and counts its commands in the
            report's ``existing``; ``"replace"`` replaces the key.
        max_payload_bytes: a key with more bytes of items than this is created with RESTORE and
            continued with merged commands; None for 33,554,432 (32 MiB). Buffering a key needs up
            to about eight times as much memory.
        retry: which commands to resend after a lost connection, if they are unanswered and so may
            have run: ``"never"``; ``"idempotent"``: only idempotent ones (SET, HSET, SADD, ZADD,
            DEL, but not RPUSH or INCR); ``"always"``. Commands that are not resent are in doubt,
            and the load continues. None means ``"idempotent"`` in a cluster; with None on a single
            server, a lost connection ends the load. A retry waits up to ``timeout`` seconds for the
            server or its successor. Commands that a server refuses because of its state, such as
            OOM, BUSY or READONLY, have not run and are retried in the same way.
        wait_replicas: the same as ``durable=N``.
        durable: when commands count as acknowledged: ``"acknowledged"``: the server has replied;
            ``"fsync"``: it has also synced its append-only file (WAITAOF: Redis 7.2 and later,
            Valkey), so they survive a crash; a number: this many replicas have them (WAIT), so they
            survive a failover. The report counts confirmed commands as ``durable``; all others are
            in doubt. A checkpoint only covers durable rows.
        checkpoint: a name under which the server stores the progress of the load, so that it can
            resume after any failure: no row is lost or applied twice. Idempotent commands such as
            SET or HSET may be resent; all others are sent in transactions. Needs a template, and a
            source that can be read again or a ``source_id``.
        resume: resume at the checkpoint; if none exists, start the load. By default, an existing
            checkpoint is an error.
        take_over: resume even if another loader is active; that loader can no longer write.
        checkpoint_clear: delete the checkpoint and start with the first row.
        source_id: an ID, such as a date, asserting that a source that can be read only once yields
            the same rows in the same order.
        metrics: where to write counters and gauges of the load in the OpenMetrics format, once a
            second and at the end: the path of a file, which is replaced, or a callable that
            receives the text. A file with other content is not replaced.
            Needs ``pip install 'fastresp[metrics]'``.
        import_source: let this load see expired keys until the import ends (CLIENT IMPORT-SOURCE),
            for a copy of a server that still receives writes. Needs Valkey 8.1 with
            ``import-mode yes``.
        wait_index: at the end, wait until the search indexes that cover the keys have indexed all
            of them. A load that was stopped does not wait.
        index_backlog: pause while more than about this many documents are waiting to be indexed.

    Returns:
        The report: commands, replies, error replies, bytes, rates.

    Raises:
        CheckpointError: the load can't start or resume (nothing was sent), or lost its checkpoint.
        CommandError: the server refuses a script, or a command of the template is unknown or has
            the wrong number of arguments (nothing was sent).
        LoadErrors: the server returned an error for a command; the load ran to its end, or
            was stopped by ``on_error="stop"`` or ``max_errors``.
        EncodeError: a value can't be encoded or is larger than the server accepts, or a command
            can't be serialised. All earlier rows were loaded, except, in mode ``"serialize"``, rows
            of the same key.
        TemplateError: the template is invalid, a row lacks a field that the template names, or a
            column has a type that the template can't send.
        TransportError: the server can't be used, the user lacks the permission for a command of the
            template (nothing was sent), or the connection was lost. Also raised at the end, unless
            ``on_error`` is ``"collect"``, if commands that ``retry`` does not resend are in doubt,
            or if a server restarted and may have lost data.
        TransportTimeout: no progress for ``timeout`` seconds.
        TypeError: the data is not an iterable of rows, or is columns and ``default`` was given.
        ValueError: an option, or a combination of options, is invalid.
        SourceError: the source of the columns failed.
        OSError: the rejects file can't be opened (nothing was sent) or written, or the metrics file
            can't be created (nothing was sent; later failures are only logged).
        ImportError: ``metrics`` is given, and the package for it is not installed.

        KeyboardInterrupt and the source's exceptions propagate unchanged, after all earlier
        commands were loaded. An exception during the load has the report as its ``report``
        attribute; exceptions of other packages also have the report as a note.

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
    """Run a load: yield each operation that the driver must run or wait for.

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
    """Run the load itself, without its observers."""
    data, template, options = chunks.data, chunks.template, chunks.options
    policy = ErrorPolicy(
        options.on_error, options.max_errors, options.rejects, place_of(data), RowKeys(template)
    )
    with closing(chunks), Indexing(template, options) as indexing:
        watch.row = resuming.reached
        watch.begin()
        try:
            # In a thread: this may read a whole RESP file.
            yield Pull(partial(check_spread, data, template, options.connections), chunks.blocks)
            yield from resuming.claiming()
            if resuming.ended:
                return policy.checked(resuming.report)
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
            transport = choose(options, server, policy, resending_of(template))
            watch.transport = transport
            resuming.prepare(transport)
            if template is not None:
                transport.transactions = "MULTI" in (command_names(data, template) or ("MULTI",))
            yield from transport.opening()
            try:
                check_connection_state(data, template, options, transport.answers)
                chunks.configure_for(transport.answers)
                yield from indexing.beginning(server, transport)
                yield from resuming.registering()
            except BaseException:
                transport.kill()
                raise
            try:
                yield from _sending(chunks, transport, show, resuming, indexing)
                yield from transport.closing()
                yield from resuming.finishing()
                yield from locating(data, transport.report.errors)
                if show is not None:
                    show(transport.report)
            except BaseException as error:
                following = partial(_following_at_the_end, chunks, transport)
                found = partial(_locating_at_the_end, data, transport, error)
                yield from transport.ending_after(error, chunks.unsent, following, found)
                raise
            finally:
                _count_nulls(transport.report, chunks.writer)
            yield from indexing.ending(show)
    report = transport.report
    if chunks.writer.skipped and not report.stopped:
        report.rows = max(report.rows, chunks.writer.rows - chunks.start_row)
    return policy.checked(report)


def _server_of(template: Template | None, options: Options) -> Server:
    """Return the server's settings, including the capabilities that the load needs."""
    needs = Requirements.of(
        template,
        nodes=True,
        fsync=options.durability == FSYNC,
        import_source=options.import_source,
        indexes=template is not None,
    )
    if options.mode == "merge":
        needs = replace(needs, optional_commands=partial(commands_over_any_keys, template))
    if options.mode == "serialize":
        needs = replace(needs, encoding_limits=True, commands=(*needs.commands, RESTORE))
    return as_server(options.server, needs)


def _count_nulls(report: Report, writer: Encoder) -> None:
    report.skipped, report.nulls_skipped = writer.skipped, writer.nulls_skipped


def _sending(
    chunks: Chunks,
    transport: Transport,
    show: Callable[[Report], object] | None,
    resuming: Resuming,
    indexing: Indexing,
) -> Steps[None]:
    """Send chunk after chunk until the source ends or the load is stopped."""
    drain = partial(_draining, chunks, transport, show)
    meanwhile = partial(_pausing, transport, show, resuming)
    if isinstance(chunks.data, Pushed):
        chunks.data.pausing = partial(_tending, transport, resuming)
        chunks.data.waiting = lambda: run(resuming.renewing())
    while not transport.live_report.stopped:
        try:
            chunk = yield from next_chunk(chunks, indexing.gate(transport.lanes))
        except LostConnection:  # noticed while waiting for an async source
            raise (yield from transport.explain_loss()) from None
        if chunk is None and chunks.blocked:
            yield from transport.wait_for_room()
            yield from _following(chunks, transport, show)
            continue
        if chunk is not None:
            yield from indexing.holding(chunk, drain, meanwhile)
            yield from transport.writing(chunk)
        yield from _following(chunks, transport, show, end=chunk is None)
        if chunk is None:
            break
        _count_nulls(transport.live_report, chunks.writer)
        yield from resuming.renewing()
        if resuming.levels:
            yield from _levelling(chunks, transport, show, resuming)
        if show is not None:
            show(transport.report)


def _tending(transport: Transport, resuming: Resuming) -> None:
    """Send commands, receive replies and renew the lease while a Pushed source pauses."""
    # The same exception is raised again when the load continues. Raised here, it would pass through
    # Arrow, which changes its type.
    with suppress(Exception):
        assert transport.lanes is not None
        transport.lanes.pump()
        run(resuming.renewing())


def _levelling(
    chunks: Chunks,
    transport: Transport,
    show: Callable[[Report], object] | None,
    resuming: Resuming,
) -> Steps[None]:
    """Send all ready chunks, wait for their replies, and record the row in the checkpoint."""
    for chunk in chunks.drain():
        yield from transport.writing(chunk)
    yield from _draining(chunks, transport, show)
    if not (transport.live_report.stopped or chunks.refused):
        yield from resuming.levelling()


def _draining(
    chunks: Chunks, transport: Transport, show: Callable[[Report], object] | None
) -> Steps[None]:
    """Wait until every sent command is answered."""
    yield from _following(chunks, transport, show, end=True)
    yield from transport.finishing()


def _pausing(
    transport: Transport, show: Callable[[Report], object] | None, resuming: Resuming
) -> Steps[None]:
    """Renew the lease and report progress while nothing is sent."""
    yield from resuming.renewing()
    if show is not None:
        show(transport.report)


def _following(
    chunks: Chunks,
    transport: Transport,
    show: Callable[[Report], object] | None = None,
    *,
    end: bool = False,
) -> Steps[None]:
    """Resend commands that a node refused, or that a lost node left unanswered.

    Ready chunks that were routed to the old nodes are sent with the resent commands, so that no
    command overtakes an earlier command of the same key.

    Args:
        end: whether to continue until every command is answered.
    """
    lanes = transport.lanes
    if transport.retries is None or lanes is None:
        return
    if end:
        yield from transport.draining()
    while (lanes.unsettled if end else lanes.due) and not transport.live_report.stopped:
        if (yield from transport.refresh_topology()):
            chunks.remap(transport.reroute(chunks.drain()))
        if end or lanes.asking:
            yield from transport.draining()
        if show is not None:
            show(transport.report)


def _locating_at_the_end(data: Any, transport: Transport, error: BaseException) -> Steps[None]:
    """After an exception, find the file and line of the rows that failed."""
    yield from locating(data, [*transport.report.errors, error])


def _following_at_the_end(chunks: Chunks, transport: Transport) -> Steps[None]:
    """After an exception of the source, wait until every sent command is answered."""
    chunks.forget()
    yield from _following(chunks, transport, end=True)
