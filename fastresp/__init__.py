"""COPY for Redis: Python data into Redis and Valkey at the speed of the server."""

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
from .fetch import fetch_hashes
from .files import read
from .lists import ListBuffer, Pushed
from .load import dump, mass_insert
from .replies import execute, iter_replies
from .report import Report
from .script import Script
from .template import Template
from .transports.redis_cli import RedisCli
from .wire.buffer import Chunk
from .wire.encode import pack
from .wire.writer import Writer, pack_many

__all__ = [
    # load
    "mass_insert",
    "iter_replies",
    "execute",
    "fetch_hashes",
    "read",
    "dump",
    "RedisCli",
    "Report",
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
