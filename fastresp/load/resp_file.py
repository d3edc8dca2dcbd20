"""Write a RESP file that contains only whole commands, even after an error."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable
from typing import Any

from ..resp.buffer import Chunk
from ..server.forks import Inherited, is_own, on_fork
from ..sources.blocking import write_all
from ..sources.source import Encoder

__all__ = ["write_chunk", "write_whole"]


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
