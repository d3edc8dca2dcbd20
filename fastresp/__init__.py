"""COPY for Redis: Python data into Redis and Valkey at the speed of the server."""

from typing import TYPE_CHECKING

from .errors import (
    CommandError,
    DecodeError,
    EncodeError,
    FastrespError,
    LeaseError,
    LoadErrors,
    ProtocolError,
    SourceError,
    TemplateError,
    TransportError,
    TransportTimeout,
)
from .fetch import Hashes, fetch_hashes
from .files import Table, read
from .files.rejects import read_rejects
from .files.resp import RespFile
from .lists import ListBuffer, Pushed
from .load import dump, mass_insert
from .replies import execute, iter_replies
from .report import Report
from .script import Script
from .template import Template
from .transports.redis_cli import RedisCli
from .wire.arrow_out import StringColumn
from .wire.buffer import Chunk
from .wire.encode import pack
from .wire.writer import Writer, pack_many

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: importing what knows it takes 15 ms."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fastresp")
    raise AttributeError(f"module 'fastresp' has no attribute {name!r}")


__all__ = [
    # load
    "mass_insert",
    "iter_replies",
    "execute",
    "fetch_hashes",
    "read",
    "read_rejects",
    "dump",
    "RedisCli",
    "Report",
    # what these return
    "Hashes",
    "Table",
    "RespFile",
    "StringColumn",
    # lists
    "ListBuffer",
    "Pushed",
    # encode
    "pack",
    "pack_many",
    "Writer",
    "Chunk",
    "Template",
    "Script",
    # errors
    "FastrespError",
    "EncodeError",
    "DecodeError",
    "TemplateError",
    "SourceError",
    "ProtocolError",
    "CommandError",
    "LoadErrors",
    "TransportError",
    "TransportTimeout",
    "LeaseError",
]
