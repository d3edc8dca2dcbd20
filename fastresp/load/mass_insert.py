"""The loaders: source, plan, chunks, and where they go."""

from __future__ import annotations

import io
import os
import stat
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import IO, Any, Literal, TypeAlias

from ..encode.script import resending_of
from ..encode.template import TemplateLike, as_template
from ..outcome.errors import TransportError
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..server.forks import Inherited, is_own, own
from ..server.options import MaxErrors, Options, Progress, Rejects
from ..server.settings import Server, ServerLike, as_server
from ..sources.blocking import write_all
from ..sources.chunks import Chunks
from ..sources.files.input import check_not_read
from ..sources.source import (
    Data,
    Encoder,
    as_source,
    encoding,
    files_of,
    naming_file,
    place_of,
    released,
)
from ..transports.base import Transport, add_report
from ..transports.choice import check_cluster, choose
from ..transports.connection import LostConnection
from ..transports.driver import Asking, Steps, next_chunk, open_source, run
from ..transports.error_policy import ErrorPolicy
from ..transports.resend import Resending
from .command_names import check_spread
from .progress import reporting

__all__ = ["dump", "loading", "mass_insert"]

# Gives the transport that carries a load: see choose().
Choose: TypeAlias = Callable[[Options, Server, ErrorPolicy, Resending | None], Transport]


def mass_insert(
    data: Data,
    template: TemplateLike = None,
    *,
    server: ServerLike = None,
    transport: Literal["auto", "redis-cli", "socket"] = "auto",
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
    """Load data into Redis or Valkey as fast as the server takes it.

    Args:
        data: any iterable, read once and never held: rows (dicts, tuples, objects with named
            fields, single values) for a template, or commands (lists or tuples of arguments). Or
            columns: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (a DataFrame of
            pandas or polars, a table or reader of pyarrow, a relation of DuckDB), a list of these,
            a Dataset or Scanner of pyarrow, a LazyFrame of polars, or what pandas'
            ``read_csv(chunksize=)`` returns; they are never made into Python objects. Or a path, a
            list of Path objects, or a query, which ``read`` reads.
        template: a command template such as ``"HSET user:{id} {**}"``, a Template, what
            ``Script.command()`` gives, a list of these, or None when ``data`` holds commands.
        server: a URL (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``), a
            client of redis-py or valkey-py, or None for the environment's ``REDIS_URL``, else
            localhost.
        transport: ``"redis-cli"``, a managed ``redis-cli --pipe``; ``"socket"``, a connection
            driven by us, which knows which command an error belongs to; ``"auto"``, redis-cli
            where there is one that can do all that is asked for, else the socket. The report
            says which one it was, and why.
        on_error: error replies raise at the end (``"raise"``), are only reported
            (``"collect"``), or the first one stops the load (``"stop"``; what is in flight then
            still runs). redis-cli does not see errors within a reply, as in that of EXEC.
        max_errors: stop when more commands than this have failed: a number, or text such as
            ``"1%"`` for a share of the replies (looked at from the 100th on).
        rejects: a path for the failed commands, as JSON lines written as they happen, which
            ``read_rejects()`` gives back, or a callable that takes each CommandError.
        rate_limit: send at most this many commands per second.
        connections: how many connections to use, from 1 to 64. Rows then arrive in no fixed order
            (the commands of a row stay together), and it takes the socket. It helps where a
            connection is the limit: a long way to the server, or one with several I/O threads.
        nulls: what a None in the data, or a key that a dict does not have, does: ``"error"``;
            ``"skip"`` leaves out its pair, item or command; ``"empty"`` sends an empty string.
        timeout: seconds without any progress after which the load is given up; None for never.
        progress: True for a bar on the terminal, or a callable that takes the Report so far.
        default: a function that turns an object that is no str, bytes, int, float or buffer
            into one of the first four. Without it Decimal, dates, times and UUID go as the text
            that ``pack`` gives them, all others are errors. It is not asked about None, and not
            for columns, which hold no objects.

    Returns:
        The report: commands, replies, error replies, bytes, rates.

    Raises:
        CommandError: the server refuses a script, or has no command of the template's name, or
            none with that many arguments (nothing was sent).
        LoadErrors: the server answered a command with an error; the load ran to its end, or
            was stopped by ``on_error="stop"`` or ``max_errors``.
        EncodeError: a value has no RESP form, or is larger than the server takes. What came
            before it was loaded.
        TemplateError: the template can't be read, or a row lacks a field that it names, or a
            column is of a type that can't be sent so.
        TransportError: the server can't be used, or the user has no right to a command of the
            template (nothing was sent), or the server was lost.
        TransportTimeout: nothing moved for ``timeout`` seconds.
        TypeError: the data is no iterable of rows, or holds columns and ``default`` was given.
        SourceError: the source of the columns failed.
        OSError: the file of rejects can't be opened (nothing was sent) or written.

        An exception of the source, and Ctrl-C, go up as they are after the commands before them
        were loaded. Each exception in mid-load has the report so far as ``report``; one that is
        not ours has it in a note, too.

    Calls in several threads do not disturb one another: each has connections of its own.
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
    )
    return run(loading(Chunks(as_source(data), as_template(template), options), choose))


def loading(chunks: Chunks, choose: Choose) -> Steps[Report]:
    """A load as a core: as ``mass_insert()``, with what it waits for left to whoever runs it.

    Args:
        chunks: the source, which is closed at the end.
        choose: gives the transport.
    """
    data, template, options = chunks.data, chunks.template, chunks.options
    policy = ErrorPolicy(options.on_error, options.max_errors, options.rejects, place_of(data))
    with closing(chunks):
        try:
            # Which may read a whole file of RESP.
            yield Asking(partial(check_spread, data, template, options.connections), chunks.blocks)
            yield from open_source(chunks)
        except CancelledError as cancellation:
            nothing = Report("socket")
            add_report(cancellation, nothing, str(nothing))
            raise
        with reporting(options.progress, data) as show, policy:
            server = as_server(options.server, template)
            carrier = choose(options, server, policy, resending_of(template))
            yield from carrier.opening()
            try:
                check_cluster(carrier.answers, server, options.transport)
            except TransportError:
                carrier.kill()
                raise
            try:
                yield from _sending(chunks, carrier, show)
                yield from carrier.closing()
            except BaseException as error:
                yield from carrier.ending_after(error, chunks.rest)
                raise
            finally:
                carrier.report.skipped = chunks.writer.skipped
    return policy.judged(carrier.report)


def _sending(
    chunks: Chunks, carrier: Transport, show: Callable[[Report], object] | None
) -> Steps[None]:
    """Send chunk after chunk, as long as they are wanted."""
    if carrier.answers is not None:
        chunks.refuse_larger(carrier.answers.max_bulk_bytes)
    while not carrier.report.stopped:
        try:
            chunk = yield from next_chunk(chunks, carrier.lanes)
        except LostConnection:  # found while waiting for an async source
            raise (yield from carrier.losing()) from None
        if chunk is None:
            break
        yield from carrier.writing(chunk)
        carrier.report.skipped = chunks.writer.skipped
        if show is not None:
            show(carrier.report)


def dump(
    data: Data,
    template: TemplateLike,
    file: str | os.PathLike[str] | IO[bytes],
    *,
    nulls: Literal["error", "skip", "empty"] = "error",
    default: Callable[[Any], Any] | None = None,
) -> int:
    """Write the RESP that mass_insert would send, for ``redis-cli --pipe`` or a later load.

    A script is written whole with each of its commands, as EVAL: whoever sends the file need not
    have loaded it.

    Args:
        data, template, nulls, default: as for ``mass_insert``.
        file: a path, or a file object open for writing bytes. After an error the file of a path
            holds the whole commands before it.

    Returns:
        How many commands were written.

    Raises:
        EncodeError, TemplateError: as ``mass_insert``.
        OSError: the file can't be written.
        ValueError: it is a file that is read.
    """
    template = as_template(template)
    if template is not None and template.scripts:
        template = template.self_contained()
    data = as_source(data)
    if isinstance(file, (str, os.PathLike)):
        check_not_read(file, files_of(data))
    writer, source = encoding(data, template, Options(nulls=nulls, default=default))
    with released(source), naming_file(data):
        if isinstance(file, (str, os.PathLike)):
            with open(file, "wb", buffering=0) as opened:
                _dump_whole(writer, source, opened)
        elif isinstance(file, io.TextIOBase):
            raise TypeError("RESP is bytes: open the file in binary mode, with 'wb'")
        else:
            for chunk in writer.chunks(source):
                _write_chunk(file, chunk)
    return writer.commands


def _dump_whole(writer: Encoder, source: Iterable[Any], file: io.FileIO) -> None:
    """Write to a file of our own; after an error it ends with the last whole command."""
    commands = size = 0
    own(file, io.FileIO.close)
    try:
        for chunk in writer.chunks(source):
            if not is_own(file):
                raise OSError(str(Inherited("file")))
            _write_chunk(file, chunk)
            commands, size = chunk.first_command + len(chunk.ends), size + len(chunk)
    except BaseException:
        if is_own(file) and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(size)
            file.seek(size)
            rest = writer.take()
            if rest is not None and rest.first_command == commands:
                _write_chunk(file, rest)
        raise


def _write_chunk(file: Any, chunk: Chunk) -> None:
    for piece in chunk.pieces():
        write_all(file, piece)
