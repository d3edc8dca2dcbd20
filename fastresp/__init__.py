"""COPY for Redis: Python data into Redis and Valkey at the speed of the server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio as aio
    from .encode.columns.arrow_out import StringColumn
    from .encode.script import Script
    from .encode.template import Template
    from .encode.writer import Writer, pack_many
    from .lists import ListBuffer, Pushed
    from .load.copying.copy import copy
    from .load.copying.dry_run import CopyPlan
    from .load.copying.verification import CopyVerifyReport
    from .load.dump import dump
    from .load.loader import Loader, loader
    from .load.mass_insert import mass_insert
    from .load.verifying.report import Difference, VerifyReport
    from .load.verifying.verify import verify
    from .outcome.errors import (
        CheckpointError,
        CommandError,
        DecodeError,
        EncodeError,
        FastrespError,
        LeaseError,
        ProtocolError,
        SourceError,
        TemplateError,
        TransportError,
        TransportTimeout,
    )
    from .outcome.report import IndexState, LoadErrors, PushError, Report
    from .replies.fetch_hashes import Hashes, fetch_hashes
    from .replies.iter_replies import execute, iter_replies
    from .replies.unload import Entries, unload
    from .resp.buffer import Chunk
    from .resp.values import pack
    from .server.options import Checkpoint, Merge, Mirror, Replicate, Serialize
    from .sources.files.command_files import read_rejects
    from .sources.files.read_source import read
    from .sources.files.resp import RespFile
    from .sources.files.table import Table
    from .transports.redis_cli import RedisCli

    __version__: str

__all__ = [
    # load
    "mass_insert",
    "loader",
    "Loader",
    "Checkpoint",
    "Merge",
    "Mirror",
    "Replicate",
    "Serialize",
    "copy",
    "iter_replies",
    "execute",
    "fetch_hashes",
    "unload",
    "read",
    "read_rejects",
    "dump",
    "verify",
    "RedisCli",
    "Report",
    "IndexState",
    "VerifyReport",
    "CopyPlan",
    "CopyVerifyReport",
    "Difference",
    # results
    "Hashes",
    "Entries",
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
    "CheckpointError",
    "ProtocolError",
    "PushError",
    "CommandError",
    "LoadErrors",
    "TransportError",
    "TransportTimeout",
    "LeaseError",
]

# Names to import when they are first used, by module. Importing all modules takes 150 ms, mostly
# for redis-py, and `fastresp --help` needs none of them.
MODULES = {
    "encode.writer": "Writer pack_many",
    "encode.script": "Script",
    "encode.template": "Template",
    "lists": "ListBuffer Pushed",
    "load.copying.copy": "copy",
    "load.copying.dry_run": "CopyPlan",
    "load.copying.verification": "CopyVerifyReport",
    "load.dump": "dump",
    "load.loader": "Loader loader",
    "load.mass_insert": "mass_insert",
    "load.verifying.report": "Difference VerifyReport",
    "load.verifying.verify": "verify",
    "outcome.errors": "CheckpointError CommandError DecodeError EncodeError FastrespError "
    "LeaseError ProtocolError SourceError TemplateError TransportError TransportTimeout",
    "outcome.report": "IndexState LoadErrors PushError Report",
    "encode.columns.arrow_out": "StringColumn",
    "replies.fetch_hashes": "Hashes fetch_hashes",
    "replies.iter_replies": "execute iter_replies",
    "replies.unload": "Entries unload",
    "resp.buffer": "Chunk",
    "resp.values": "pack",
    "server.options": "Checkpoint Merge Mirror Replicate Serialize",
    "sources.files.read_source": "read",
    "sources.files.table": "Table",
    "sources.files.command_files": "read_rejects",
    "sources.files.resp": "RespFile",
    "transports.redis_cli": "RedisCli",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name on first use."""
        if name == "__version__":
            from importlib.metadata import version

            return version("fastresp")
        if name == "aio":
            return import_module(".aio", __name__)
        for module, names in MODULES.items():
            if name in names.split():
                value = getattr(import_module(f".{module}", __name__), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'fastresp' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "aio"})
