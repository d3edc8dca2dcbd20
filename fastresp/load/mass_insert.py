"""``mass_insert()``: encode a source and send it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from ..encode.template import TemplateLike, as_template
from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import Report
from ..outcome.tracebacks import public
from ..server.options import MaxErrors, Metrics, Nulls, Options, Progress, RateLimit, Rejects
from ..server.settings import Server, ServerLike
from ..server.url_or_client import is_cluster
from ..sources.chunks import Chunks
from ..sources.source import Data, as_source, files_of
from ..transports.base import Transport
from ..transports.driver import Steps, run
from ..transports.redis_cli import RedisCli
from ..transports.socket import SocketTransport
from .checkpoint.feature import CheckpointFeature
from .load import Choose, Feature, Load
from .progress import ShownProgress
from .search_indexes import SearchIndexes

__all__ = ["features", "loading", "mass_insert"]


@public
def mass_insert(
    data: Data,
    template: TemplateLike = None,
    server: ServerLike = None,
    *,
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
    """Return the core of a load; see ``Load.core()``.

    Args:
        chunks: the source; closed at the end.
        choose: returns the transport.
    """
    try:
        return Load(chunks, choose, features(chunks)).core()
    except BaseException:
        chunks.close()
        raise


def features(chunks: Chunks) -> list[Feature]:
    """Return the features of a load, in the order in which their hooks are called.

    ``progress`` may be a Feature; the command line's JSON log is one.

    Raises:
        ImportError, TypeError, ValueError: the metrics can't be written.
    """
    options = chunks.options
    found: list[Feature] = []
    if isinstance(options.progress, Feature):
        found.append(options.progress)
    if options.metrics is not None:
        from .metrics import Metrics

        found.append(Metrics(options, files_of(chunks.data)))
    # Imported by programs that configure tracing, and by redis-py if OpenTelemetry is installed.
    trace: Any = sys.modules.get("opentelemetry.trace")
    # OpenTelemetry may be misconfigured, or only partly imported.
    with suppress(Exception):
        if trace is not None and not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider
        ):
            from .tracing import Span

            found.append(Span(trace, chunks.template, options))
    if options.progress and not isinstance(options.progress, Feature):
        found.append(ShownProgress(options.progress))
    # The checkpoint is last: it is registered only if all other features accept the connections.
    return [*found, SearchIndexes(chunks.template, options), CheckpointFeature(chunks)]


def choose(options: Options, *, server: Server, **more: Any) -> Transport:
    """Return the requested transport; for ``"auto"``, the socket.

    Args:
        options: the options of the load.
        server: the parsed server of ``options``.
        more: further arguments of SocketTransport.

    Raises:
        TransportError: redis-cli was requested but can't load this template, or a cluster.
    """
    if options.transport != "redis-cli":
        return SocketTransport(options, server=server, **more)
    beyond = ""
    if more["resending"] is not None:
        beyond = "redis-cli --pipe can't resend a script that the server has forgotten"
    if is_cluster(options.server):
        beyond = "redis-cli --pipe can't load a whole cluster"
    if beyond:
        raise TransportError(Message(f"{beyond}; use ", Hint("transport", "socket")))
    return RedisCli(server, timeout=options.timeout, rate_limit=options.rate_limit)
