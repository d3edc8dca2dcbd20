"""The loaders: source, plan, chunks, and where they go."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, Literal

from .errors import TransportError
from .progress import Progress, reporting
from .report import Report
from .server import ServerLike
from .template import Command, as_template
from .transports.redis_cli import RedisCli
from .wire.buffer import Chunk
from .wire.writer import Writer

__all__ = ["dump", "mass_insert"]


def mass_insert(
    data: Iterable[Any],
    command: Command = None,
    *,
    server: ServerLike = None,
    transport: Literal["auto", "redis-cli"] = "auto",
    on_error: Literal["raise", "collect", "stop"] = "raise",
    nulls: Literal["error", "skip", "empty"] = "error",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
) -> Report:
    """Load data into Redis or Valkey as fast as the server takes it.

    Args:
        data: any iterable, read once and never held: rows (dicts, tuples, objects with named
            fields, single values) for a template, or commands (lists or tuples of arguments).
        command: a command template such as ``"HSET user:{id} {**}"``, a list of them, a
            Template, or None when ``data`` holds commands.
        server: a URL (``redis://``, ``rediss://``, ``unix://``), a ``redis.Redis`` client, or
            None for the environment's ``REDIS_URL``, else localhost.
        transport: ``"redis-cli"``, a managed ``redis-cli --pipe``; ``"auto"`` is the same as yet.
        on_error: error replies raise at the end (``"raise"``) or are only reported
            (``"collect"``). ``"stop"`` needs a transport that is not in this version.
        nulls: what a None in the data does: ``"error"``; ``"skip"`` leaves out its pair, item or
            command; ``"empty"`` sends an empty string.
        timeout: seconds without any progress after which the load is given up; None for never.
        progress: True for a bar on the terminal, or a callable that takes the Report so far.
        default: a function that turns an object of a type that has no RESP form into str, bytes,
            int or float.

    Returns:
        The report: commands, replies, error replies, bytes, rates.

    Raises:
        CommandErrors: the server answered a command with an error; the load ran to its end.
        EncodeError: a value has no RESP form. What came before it was loaded.
        TemplateError: the template can't be read, or a row lacks a field that it names.
        TransportError: the server can't be used (nothing was sent), or was lost.
        TransportTimeout: nothing moved for ``timeout`` seconds.

        An exception of the source, and Ctrl-C, go up as they are after the commands before them
        were loaded. Each exception in mid-load has the report so far, in ``report`` or a note.
    """
    _check_options(data, transport, on_error)
    writer = Writer(as_template(command), nulls=nulls, default=default)
    source = iter(data)
    with reporting(progress, data) as show, RedisCli(server, timeout=timeout) as cli:
        try:
            for chunk in writer.chunks(source):
                cli.write(chunk)
                if show is not None:
                    show(cli.report)
        except TransportError:
            raise
        except BaseException as error:
            _write_rest(writer, cli, error)
            raise
    report = cli.report
    if on_error == "raise":
        report.raise_for_errors()
    return report


def dump(
    data: Iterable[Any],
    command: Command,
    file: str | os.PathLike[str] | IO[bytes],
    *,
    nulls: Literal["error", "skip", "empty"] = "error",
    default: Callable[[Any], Any] | None = None,
) -> int:
    """Write the RESP that mass_insert would send, for ``redis-cli --pipe`` or a later load.

    Args:
        data, command, nulls, default: as for ``mass_insert``.
        file: a path, or a file object open for writing bytes. After an error the file of a path
            holds the whole commands before it.

    Returns:
        How many commands were written.

    Raises:
        EncodeError, TemplateError: as ``mass_insert``.
        OSError: the file can't be written.
    """
    _check_source(data)
    writer = Writer(as_template(command), nulls=nulls, default=default)
    source = iter(data)
    if isinstance(file, (str, os.PathLike)):
        with open(file, "wb", buffering=0) as opened:
            _dump_whole(writer, source, opened)
    elif isinstance(file, io.TextIOBase):
        raise TypeError("RESP is bytes: open the file in binary mode, with 'wb'")
    else:
        for chunk in writer.chunks(source):
            _write_all(file, chunk)
    return writer.commands


def _dump_whole(writer: Writer, source: Iterable[Any], file: io.FileIO) -> None:
    """Write to a file of our own; after an error it ends with the last whole command."""
    commands = size = 0
    try:
        for chunk in writer.chunks(source):
            _write_all(file, chunk)
            commands, size = chunk.first_command + len(chunk.ends), size + len(chunk)
    except BaseException:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(size)
            file.seek(size)
            rest = writer.take()
            if rest is not None and rest.first_command == commands:
                _write_all(file, rest)
        raise


def _write_all(file: IO[bytes] | io.FileIO, chunk: Chunk) -> None:
    view = memoryview(chunk)
    while view:
        # Unbuffered files may take a part, and file-like objects may return nothing.
        written = file.write(view)
        if written is None and isinstance(file, io.RawIOBase):
            raise BlockingIOError("the file does not block and takes no more; give a blocking one")
        view = view[len(view) if written is None else written :]


def _check_options(data: Any, transport: str, on_error: str) -> None:
    if transport not in ("auto", "redis-cli"):
        raise ValueError(f"transport is 'auto' or 'redis-cli', not {transport!r}")
    if on_error == "stop":
        raise TransportError(
            "on_error='stop' has to know which command failed, and redis-cli --pipe can't tell; "
            "the socket transport, which can, is not in this version; use 'raise' or 'collect'"
        )
    if on_error not in ("raise", "collect"):
        raise ValueError(f"on_error is 'raise', 'collect' or 'stop', not {on_error!r}")
    _check_source(data)


def _check_source(data: Any) -> None:
    """Refuse what is iterable but surely not an iterable of rows."""
    if isinstance(data, (str, bytes, bytearray)):
        raise TypeError(f"data is an iterable of rows or commands, not one {type(data).__name__}")
    if isinstance(data, Mapping):
        raise TypeError("data is an iterable of rows, and a mapping is one row: put it in a list")
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        raise TypeError(
            f"a {type(data).__name__} holds columns, and this version loads rows: iterate over "
            "them, such as df.itertuples(index=False) or table.to_pylist()"
        )


def _write_rest(writer: Writer, cli: RedisCli, error: BaseException) -> None:
    """Send the whole commands before an error, unless there is a gap before them."""
    rest = writer.take()
    try:
        cli.flush()
        if rest is not None and rest.first_command == cli.report.commands:
            cli.write(rest)
    except TransportError as second:
        error.add_note(f"fastresp: {second}")
    except BaseException:
        cli.kill()  # a second Ctrl-C waits for nothing
        raise
