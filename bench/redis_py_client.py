"""redis-py as it is with hiredis, and as it is without."""

from __future__ import annotations

from pathlib import Path

import redis
from redis._parsers import Encoder, _HiredisParser, _RESP2Parser
from redis.connection import HiredisRespSerializer, PythonRespSerializer

__all__ = ["PARSERS", "redis_py"]

PARSERS = ("PythonParser", "HiredisParser")
# redis-py's own bound, from where arguments are not copied together.
BUFFER_CUTOFF = 6000


def redis_py(socket: Path, parser: str) -> redis.Redis:
    """A client over a unix socket, by the report's name of its parser.

    What packs commands goes with the parser, as it does where hiredis is installed or is not.
    """
    encode = Encoder("utf-8", "strict", False).encode
    reads, packs = {
        "PythonParser": (_RESP2Parser, PythonRespSerializer(BUFFER_CUTOFF, encode)),
        "HiredisParser": (_HiredisParser, HiredisRespSerializer()),
    }[parser]
    client = redis.Redis(
        connection_pool=redis.ConnectionPool(
            connection_class=redis.UnixDomainSocketConnection,
            path=str(socket),
            parser_class=reads,
            command_packer=packs,
            protocol=2,
            socket_timeout=None,
        )
    )
    connection = client.connection_pool.get_connection()
    assert type(connection._parser) is reads and connection._command_packer is packs
    client.connection_pool.release(connection)
    return client
