"""Connect to a server, or to all nodes of its cluster, to read replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..encode.template import Template
from ..sources.chunks import Chunks
from ..transports.driver import Steps
from ..transports.socket import connecting
from .cluster_core import ClusterCore
from .reply_core import ReplyCore

__all__ = ["opening"]

T = TypeVar("T", bound=ClusterCore)


def opening(core: ReplyCore, chunks: Chunks, kind: Callable[..., T]) -> Steps[T | None]:
    """Connect to the server, or to all nodes of its cluster.

    Args:
        core: receives the connection if the server is not a cluster.
        chunks: the commands to send.
        kind: creates the ClusterCore of a cluster.

    Returns:
        The ClusterCore, connected to all nodes; None if ``core`` received the connection.

    Raises:
        TransportError: the server can't be used.
    """
    chunks.in_order = True
    connections, answers = yield from connecting(core.server, core.timeout)
    chunks.configure_for(answers)
    needs = core.server.requirements
    if answers.cluster and (needs.nodes or needs.follow_redirects):
        # Don't resend the commands of a transaction: only some of them would be resent.
        return kind(core, connections, answers, follows=not _has_multi(chunks.template))
    if answers.evicts:
        core.ask_for_sizes()
    core.attach(connections[0])
    return None


def _has_multi(template: Template | None) -> bool:
    """Return whether a template has a transaction; rows of commands can't have transactions."""
    names = [] if template is None else [name for name, *_ in template.commands]
    return any(
        isinstance(part, bytes) and part.upper() == b"MULTI" for parts in names for part in parts
    )
