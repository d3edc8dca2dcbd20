"""A connection is cut at any moment of a load with a checkpoint, even before its first row."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from buffers import Cutter
from loads import Insert
from resumed_loads import NAME, check_lists
from waiting import only_we_are_connected

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

COUNT = 20_000
ROWS = [(number % 10, number) for number in range(COUNT)]


class CutsAt(Cutter):
    """A proxy that cuts a connection at a given piece of the clients' data.

    Args:
        folder, server: as for Cutter.
        at: the number of the piece, from 1; 0 for never.
    """

    def __init__(self, folder: Path, server: Path, at: int) -> None:
        super().__init__(folder, server)
        self.left = at

    def _cut(self, data: bytes, server: socket.socket) -> bool:
        self.left -= 1
        if self.left:
            return False
        self.cuts += 1
        if self.arrives:
            server.sendall(data)
        return True


@pytest.mark.few(24)
@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("template", ["RPUSH list:{0} {1}", "HSET hash:{0} {1} {1}"])
@pytest.mark.parametrize("at", range(1, 31))
def test_cut_anywhere(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path, at: int,
    template: str, arrives: bool,
) -> None:  # fmt: skip
    """Any error is ours, and a resumed load completes the data."""
    options: dict[str, Any] = {"checkpoint": NAME, "resume": True, "timeout": 10}
    with CutsAt(tmp_path, server.socket, at) as proxy:
        proxy.arrives = arrives
        with suppress(fastresp.TransportError, fastresp.CheckpointError):
            insert_singly(ROWS, template, server=proxy.url, **grouped(options))
        assert proxy.cuts == 1
    report = insert_singly(ROWS, template, server=server.url, **grouped(options))
    assert report.in_doubt == 0
    if template.startswith("RPUSH"):
        check_lists(client, 10, COUNT)
    else:
        assert sum(client.hlen(f"hash:{key}") for key in range(10)) == COUNT
    only_we_are_connected(client)
