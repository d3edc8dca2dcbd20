"""Connect to the server that sends the replies, or to all nodes of its cluster."""

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
        core: receives the connection if it is a single server.
        chunks: the commands to send.
        kind: ClusterCore or a subclass.

    Returns:
        The nodes of a cluster; None for a single server.

    Raises:
        TransportError: the server can't be used.
    """
    chunks.in_order = True
    connections, answers = yield from connecting(core.server, core.timeout)
    chunks.adapt(answers)
    if answers.cluster and (core.server.nodes or core.server.follows):
        # Don't resend commands of transactions: only a part of a transaction would be resent.
        return kind(core, connections, answers, follows=not _has_multi(chunks.template))
    if answers.evicts:
        core.ask_for_sizes()
    core.attach(connections[0])
    return None


def _has_multi(template: Template | None) -> bool:
    """Return whether a template has transactions. Commands passed as rows can't be in one."""
    names = [] if template is None else [name for name, *_ in template.commands]
    return any(
        isinstance(part, bytes) and part.upper() == b"MULTI" for parts in names for part in parts
    )
