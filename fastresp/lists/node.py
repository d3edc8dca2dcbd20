"""The server of a list; in a cluster, the node that owns the list's slot."""

from __future__ import annotations

import time
from typing import Any

from ..outcome.errors import TransportError
from ..server.answers import Answers
from ..server.settings import Server
from ..transports.driver import Steps
from ..transports.retries import MAX_S
from ..transports.socket import connecting
from .settings import Settings

__all__ = ["Node"]


class Node:
    """Opens connections to the server of a list, or to the owner of the list's slot.

    Args:
        server: the server, or any node of its cluster.
        settings: the settings of the buffer.

    Attributes:
        server: the server of the last connection.
        clustered: whether the server is known to be a cluster node.
    """

    clustered = False

    def __init__(self, server: Server, settings: Settings) -> None:
        server.slot = settings.slot
        self.server = server
        self._timeout = settings.timeout
        self._given = server
        # Nodes that may know the owner of the slot. They are asked in this order until one answers.
        self._known = [server]

    def connecting(self) -> Steps[tuple[Any, Answers]]:
        """Open a connection to the owner of the slot; return it with the server's Answers.

        Raises:
            TransportError: no node answers, or the owner of the slot can't be used.
        """
        end = time.monotonic() + (self._timeout or MAX_S)
        failed: TransportError | None = None
        for server in tuple(self._known):
            try:
                [connection], answers = yield from connecting(server, self._timeout)
            except TransportError as error:
                failed = failed or error
                self.suspect()
                if time.monotonic() > end:
                    break
                continue
            self._found(answers)
            return connection, answers
        assert failed is not None
        raise failed

    def suspect(self) -> None:
        """Move the first known node to the end, since this node could not be used."""
        first, *others = self._known
        self._known = [*others, first]

    def _found(self, answers: Answers) -> None:
        """Remember the nodes of the cluster, the owner of the slot first."""
        topology, slot = answers.topology, self.server.slot
        if topology is None or slot is None:
            return
        self.clustered = True
        nodes = self.server.nodes_of(topology.nodes, 1)
        self.server = nodes[topology.slots[slot]]
        others = (node for node in nodes if node is not self.server)
        replicas = self.server.nodes_of(topology.replicas, 1)
        self._known = [self.server, *others, *replicas, self._given]
