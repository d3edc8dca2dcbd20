"""``dump()``: encode a source and write it to a file."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable
from typing import IO, Any, Literal

from ..encode.row_key import RowKeys
from ..encode.template import Template, TemplateLike, as_template, check_creating
from ..outcome.tracebacks import public
from ..replies.locating import naming_place
from ..resp.buffer import Chunk
from ..server.file_io import write_all
from ..server.forks import Inherited, is_own, on_fork
from ..server.options import Nulls, Options
from ..sources.files.paths import check_not_read
from ..sources.source import Data, Encoder, as_source, encoding, files_of, released

__all__ = ["dump", "write_chunk", "write_whole"]


@public
def dump(
    data: Data,
    template: TemplateLike,
    file: str | os.PathLike[str] | IO[bytes],
    *,
    nulls: Nulls = "auto",
    default: Callable[[Any], Any] | None = None,
    format: Literal["resp", "rdb"] = "resp",  # noqa: A002
    rdb_version: Literal[9, 10, 11] = 10,
) -> int:
    """Write the RESP that mass_insert would send, or an RDB file of the keys it would create.

    Send RESP with ``redis-cli --pipe`` or a later load. Each command of a script is written as EVAL
    with the whole script, so the script need not be loaded first.

    Servers read an RDB file at startup; managed services import it. The file contains whole keys:
    strings, hashes, lists, sets and sorted sets. All SET, HSET, RPUSH, LPUSH, SADD or ZADD commands
    of a key must be adjacent. EX, PX, and a following EXPIRE or PEXPIRE of the key count from the
    time of the ``dump()`` call. The file is replaced atomically. The commands of a key are kept in
    memory, so a key with more than 512 MiB of values is an error.

    Args:
        data, template, nulls, default: as for ``mass_insert``.
        file: a path, or, for RESP, a file object open for writing bytes. After an error, a RESP
            file at a path is truncated after its last whole command, and an RDB file is not
            written.
        format: ``"resp"`` or ``"rdb"``.
        rdb_version: version of the RDB file: 9 is read by Redis 6.2 and later, 10 by Redis 7.0 and
            later and by Valkey, 11 by Redis 7.2 and later and by Valkey. Version 10 fits most
            servers: a server that reads 11 stores a version 10 file's values just as compactly.

    Returns:
        The number of commands written; for an RDB file, the number of commands in its keys.

    Raises:
        EncodeError, TemplateError: as in ``mass_insert``; for an RDB file, also if a command
            creates no key of these types, or if rows that are not adjacent create the same key.
        OSError: the file can't be written.
        TypeError: ``file`` is not a path, and the format is RDB.
        ValueError: the file is also the source, or an option has an invalid value.
    """
    template = as_template(template)
    if format != "resp":
        _check_rdb(template, file, format, rdb_version)
        if nulls == "delete":
            raise ValueError("an RDB file contains whole keys; leave out nulls='delete'")
    elif isinstance(file, (str, os.PathLike)) and os.fspath(file).endswith(".rdb"):
        raise ValueError(f"{os.fspath(file)} would hold RESP; add format='rdb', or name it .resp")
    elif template is not None and template.scripts:
        template = template.self_contained()
    data = as_source(data, template)
    if isinstance(file, (str, os.PathLike)):
        check_not_read(file, files_of(data))
    writer, source = encoding(data, template, Options(nulls=nulls, default=default))
    with released(source), naming_place(data):
        if isinstance(file, (str, os.PathLike)) and format == "rdb":
            from .rdb_file import write_rdb

            write_rdb(writer, source, file, rdb_version, RowKeys(template))
        elif isinstance(file, (str, os.PathLike)):
            with open(file, "wb", buffering=0) as opened:
                write_whole(writer, source, opened)
        elif isinstance(file, io.TextIOBase):
            raise TypeError("RESP is binary: open the file with mode 'wb'")
        else:
            for chunk in writer.chunks(source):
                write_chunk(file, chunk)
    return writer.commands


def _check_rdb(template: Template | None, file: object, format: str, rdb_version: int) -> None:  # noqa: A002
    """Check the options of an RDB file before the file is opened."""
    from .rdb_file import check_version

    if format != "rdb":
        raise ValueError(f"format must be 'resp' or 'rdb', not {format!r}")
    if not isinstance(file, (str, os.PathLike)):
        raise TypeError(
            "an RDB file needs a path, where it is placed once complete, not a "
            f"{type(file).__name__}"
        )
    check_version(rdb_version)
    check_creating(template, file=True)


def write_whole(writer: Encoder, source: Iterable[Any], file: io.FileIO) -> None:
    """Write the commands of a source to a file.

    After an error, the file is truncated after its last whole command.
    """
    commands = size = 0
    on_fork(file, io.FileIO.close)
    try:
        for chunk in writer.chunks(source):
            if not is_own(file):
                raise OSError(str(Inherited("file")))
            write_chunk(file, chunk)
            commands, size = chunk.first_command + chunk.commands, size + len(chunk)
    except BaseException:
        if is_own(file) and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(size)
            file.seek(size)
            rest = writer.take()
            if rest is not None and rest.first_command == commands:
                write_chunk(file, rest)
        raise


def write_chunk(file: Any, chunk: Chunk) -> None:
    """Write a chunk to a binary file object."""
    for piece in chunk.pieces():
        write_all(file, piece)
