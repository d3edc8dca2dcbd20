"""redis-py with hiredis and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from redis._parsers import Encoder, _HiredisParser, _RESP2Parser
from redis.connection import HiredisRespSerializer, PythonRespSerializer

__all__ = ["PARSERS", "redis_py"]

PARSERS = ("PythonParser", "HiredisParser")
# redis-py's own limit: longer arguments are not joined.
BUFFER_CUTOFF = 6000


def redis_py(where: Path | int, parser: str, database: int = 0) -> redis.Redis:
    """Return a connected client with a parser and its packer.

    Args:
        where: a unix socket, or a port of the loopback.
        parser: one of ``PARSERS``, the names in the 2018 report.
        database: its number.
    """
    encode = Encoder("utf-8", "strict", False).encode
    reads, packs = {
        "PythonParser": (_RESP2Parser, PythonRespSerializer(BUFFER_CUTOFF, encode)),
        "HiredisParser": (_HiredisParser, HiredisRespSerializer()),
    }[parser]
    place: dict[str, Any] = {"connection_class": redis.Connection, "port": where}
    if isinstance(where, Path):
        place = {"connection_class": redis.UnixDomainSocketConnection, "path": str(where)}
    client = redis.Redis(
        connection_pool=redis.ConnectionPool(
            **place,
            parser_class=reads,
            command_packer=packs,
            protocol=2,
            db=database,
            socket_timeout=None,
        )
    )
    connection = client.connection_pool.get_connection()
    assert type(connection._parser) is reads and connection._command_packer is packs
    client.connection_pool.release(connection)
    return client
