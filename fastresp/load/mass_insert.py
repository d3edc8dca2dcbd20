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
from ..server.file_io import needed_for
from ..server.options import (
    SNAPSHOT,
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
)
from ..server.settings import Server, ServerLike, is_cluster
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
from .server_warnings import ServerWarnings

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
    """Load data into Redis or Valkey as fast as the server accepts it.

    Args:
        data: one of:

            - an iterable of rows for a template (dicts, tuples, objects with named fields, single
              values) or of commands (lists or tuples of arguments). The iterable is iterated once,
              and never loaded into memory as a whole.
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
            (commands in flight still run). redis-cli does not detect errors nested in a reply, such
            as EXEC's. Whatever ``on_error`` is, a reply such as OOM, BUSY or READONLY stops a load
            to a single server, unless ``retry`` or ``max_errors`` is given.
        max_errors: stop when more commands than this have failed: a number, or a percentage of
            the replies such as ``"1%"`` (checked once there are 100 replies).
        rejects: where to write failed commands during the load: the path of a JSON Lines file,
            which ``read_rejects()`` reads, or a callable that receives each CommandError.
        rate_limit: maximum rate of all connections together: commands per second, or bytes per
            second as a text such as ``"50MB"``, ``"800KB"`` or ``"64MiB"``.
        connections: number of connections, 1 to 64; in a cluster, to each primary. Several
            connections need the socket, and keep the order only of commands with the same first
            key. They help if one connection is the bottleneck: with high latency, or a server with
            several I/O threads.
        nulls: what to do with None, or a key missing from a dict. ``"auto"`` omits a field-value
            pair of ``{**}``, and raises anywhere else, such as in a key or score.
            ``"skip"`` omits the field-value pair, item or command; ``"empty"`` sends an empty
            string; ``"error"`` raises; ``"delete"`` is ``"auto"`` plus an HDEL of the omitted
            fields after the row's HSET: otherwise, they would keep the values of an earlier load.
            To replace whole hashes, use ``mode=Merge(exists="replace")``; for any keys,
            ``mode=Serialize(exists="replace")``.
        timeout: give up after this many seconds without progress; None to wait forever.
        progress: True for a progress bar on the terminal, or a callable that receives the live
            Report.
        default: a function that converts any object other than str, bytes, int, float or buffer
            to a str, bytes, int or float. By default, Decimal, date, time and UUID objects are sent
            as the text that ``pack`` returns for them, and all others are errors. Not called for
            None or for columns, which contain no Python objects.
        mode: ``"commands"`` sends the commands unchanged; ``"merge"`` or a ``Merge`` combines
            adjacent commands, or replaces whole hashes; ``"serialize"`` or a ``Serialize`` creates
            whole keys with RESTORE; ``"replicate"`` or a ``Replicate`` has an empty server load an
            RDB file as a replica.
        retry: which commands to resend after a lost connection, if they are unanswered and so may
            have run: ``"never"``; ``"idempotent"``: only idempotent ones (SET, HSET, SADD, ZADD,
            DEL, but not RPUSH or INCR); ``"always"``. Commands that are not resent are in doubt,
            and the load continues. None means ``"idempotent"`` in a cluster; with None on a single
            server, a lost connection ends the load. A retry waits up to ``timeout`` seconds for the
            server or its successor. Commands that a server refuses because of its state, such as
            OOM, BUSY or READONLY, have not run and are retried in the same way.
        durable: when commands count as acknowledged: ``"acknowledged"``: the server has replied;
            ``"fsync"``: it has also synced its append-only file (WAITAOF: Redis 7.2 and later,
            Valkey), so they survive a crash; ``"snapshot"``: a BGSAVE that began after the last
            command was successful, in a cluster on each primary, so they survive a restart from the
            RDB file; a number: this many replicas have them (WAIT), so they survive a failover. The
            report counts confirmed commands as ``durable``; all others are in doubt. A checkpoint
            only covers durable rows, and can't be used with ``"snapshot"``. A load that ends early
            takes no snapshot.
        checkpoint: a ``Checkpoint``, or its name: the server stores the progress of the load, so
            that it can resume after any failure.
        metrics: where to write counters and gauges of the load in the OpenMetrics format, once a
            second and at the end: the path of a file, which is replaced, or a callable that
            receives the text. A file with other content is not replaced.
            Needs ``pip install 'fastresp[metrics]'``.
        receipt: the path of a JSON file to write at the end, even after an exception: the source
            with a digest, the template, the server, the counts, and the outcome.
            ``verify(receipt=)`` compares the server with the source again. Only an earlier receipt
            or an empty file is replaced.
        lineage: send the receipt as OpenLineage events with OpenLineageClient, which reads its own
            configuration, such as ``OPENLINEAGE_URL``. A failure is only logged.
            Needs ``pip install 'fastresp[lineage]'``.
        import_source: make this load an import source, which sees expired keys (CLIENT
            IMPORT-SOURCE). Use it to copy a server that still receives writes. Needs Valkey 8.1
            with ``import-mode yes``.
        wait_index: at the end, wait until the search indexes that cover the keys have indexed all
            of them. A load that was stopped does not wait.
        index_backlog: number of documents; the load pauses while about this many, or more, are
            waiting to be indexed.
        pause_saves: whether to pause the server's own snapshots, and its rewrites of the
            append-only file, until the load ends; in a cluster, on each primary. The settings are
            then restored, even after an exception or Ctrl-C. Needs permission for CONFIG GET,
            CONFIG SET, CLIENT SETNAME and CLIENT LIST.
        mirror: a pattern of keys, such as ``"user:*"``, or a ``Mirror``: after a load without
            errors, delete the keys of this pattern that the source does not name, and with
            ``HSET key {**}``, the fields that their rows do not have.

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
            if a server restarted and may have lost data, or if ``pause_saves`` could not restore
            the server's settings.
        TransportTimeout: no progress for ``timeout`` seconds.
        TypeError: the data is not an iterable of rows, or is columns and ``default`` was given.
        ValueError: an option, or a combination of options, is invalid.
        SourceError: the source of the columns failed, or ``mirror`` has deleted nothing because
            of its limit.
        OSError: the rejects file can't be opened (nothing was sent) or written, the metrics file
            can't be created (nothing was sent; later failures are only logged), or the receipt
            can't be created (nothing was sent) or written (after the load).
        ImportError: ``metrics`` or ``lineage`` is given, and its package is not installed.

        KeyboardInterrupt and the source's exceptions propagate unchanged, after all earlier
        commands were loaded. An exception during the load has the report as its ``report``
        attribute; exceptions of other packages also have the report as a note.

    Thread-safe: each call opens its own connections.
    """
    options = Options.of(locals())
    template = as_template(template)
    return run(loading(Chunks(as_source(data, template), template, options), choose))


def loading(chunks: Chunks, choose: Choose, *more: Feature) -> Steps[Report]:
    """Return the core of a load; see ``Load.core()``.

    Args:
        chunks: the source; closed at the end.
        choose: returns the transport.
        more: further features, called after all others.
    """
    try:
        with needed_for("the load can't start"):  # the features may have to be imported
            found = features(chunks)
        return Load(chunks, choose, [*found, *more]).core()
    except BaseException:
        chunks.close()
        raise


def features(chunks: Chunks) -> list[Feature]:
    """Return the features of a load, in the order in which their hooks are called.

    ``progress`` may be a Feature, such as the command line's JSON log.

    Raises:
        ImportError, TypeError, ValueError: the metrics can't be written.
    """
    options = chunks.options
    found: list[Feature] = []
    if options.durable == SNAPSHOT:
        from .snapshot import Snapshot

        found.append(Snapshot(options))  # first, so that it is the last to finish
    if isinstance(options.progress, Feature):
        found.append(options.progress)
    if options.receipt is not None or options.lineage:
        from .receipt import Receipt

        found.insert(0, Receipt(options))  # its ended() is called last
    if options.metrics is not None:
        from .telemetry import Metrics

        found.append(Metrics(options, files_of(chunks.data)))
    # Imported by programs that configure tracing, and by redis-py if OpenTelemetry is installed.
    trace: Any = sys.modules.get("opentelemetry.trace")
    # OpenTelemetry may be misconfigured, or only partly imported.
    with suppress(Exception):
        if trace is not None and not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider
        ):
            from .telemetry import Span

            found.append(Span(trace, chunks.template, options))
    if options.progress and not isinstance(options.progress, Feature):
        found.append(ShownProgress(options.progress))
    if options.pause_saves:
        from .paused_saves import PausedSaves

        found.append(PausedSaves(options))
    if options.mirror is not None:
        from .mirror import Mirroring

        found.append(Mirroring(chunks))
    # The checkpoint is last: it is registered only if all other features accept the connections.
    found += [ServerWarnings(), SearchIndexes(chunks.template, options)]
    return [*found, CheckpointFeature(chunks)]


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
