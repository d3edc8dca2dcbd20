"""The snapshot of a server as a file object: ``redis+psync://host:port``."""

from __future__ import annotations

import io
import re

from ...outcome.messages import Message
from ...server.preflight import Requirements
from ...server.settings import ASK_TIMEOUT_S, Server
from ..replica_stream import ReplicaStream

__all__ = ["ReplicaFile", "is_server"]

SERVER = re.compile(r"(redis|rediss|valkey|valkeys|unix)\+psync://", re.IGNORECASE)
# Maximum seconds without data.
TIMEOUT_S = 6 * ASK_TIMEOUT_S


def is_server(source: object) -> bool:
    """Return whether a source is the URL of a server whose snapshot is to be read."""
    return isinstance(source, str) and SERVER.match(source) is not None


class ReplicaFile(io.RawIOBase):
    """The snapshot of a server as an RDB file, requested as by a replica, at the first ``read()``.

    Args:
        url: the URL of the server, with ``+psync`` after its scheme.

    Raises:
        ValueError: the URL can't be parsed, or names a database.
    """

    def __init__(self, url: str) -> None:
        server = Server(re.sub(r"\+psync", "", url, count=1), Requirements(reading=True))
        if server.settings.get("db"):
            raise ValueError("a snapshot has all databases; choose one with db=, not in the URL")
        self.name = f"snapshot of {server}"
        instead = Message("use fastresp.unload() to read with SCAN")
        self._stream = ReplicaStream(server, TIMEOUT_S, instead=instead)
        self._begun = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the end; raises as ``ReplicaStream`` does."""
        if not self._begun:
            self._begun = True
            self._stream.open()
        return self._stream.read(size)

    def close(self) -> None:
        self._stream.close()
        super().close()
