"""COPY for Redis: Python data into Redis and Valkey at the speed of the server."""

from typing import TYPE_CHECKING

from .encode.row_writer import Writer, pack_many
from .encode.script import Script
from .encode.template import Template
from .lists import ListBuffer, Pushed
from .load.mass_insert import dump, mass_insert
from .outcome.errors import (
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
from .outcome.report import Report
from .replies.arrow_out import StringColumn
from .replies.fetch_hashes import Hashes, fetch_hashes
from .replies.iter_replies import execute, iter_replies
from .resp.buffer import Chunk
from .resp.values import pack
from .sources.files import Table, read
from .sources.files.rejects import read_rejects
from .sources.files.resp import RespFile
from .transports.redis_cli import RedisCli

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Look up the version on first use: importing ``importlib.metadata`` takes 15 ms."""
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
