"""Choose the transport of a load."""

from __future__ import annotations

from typing import Any

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message
from ..server.options import Options
from ..server.settings import Server
from ..server.url_or_client import is_cluster
from .base import Transport
from .redis_cli import RedisCli
from .socket import SocketTransport

__all__ = ["choose"]


def choose(options: Options, *, server: Server, **more: Any) -> Transport:
    """Return the requested transport; for ``"auto"``, the socket.

    Args:
        options: the options of the load.
        server: the parsed server of ``options``.
        more: further arguments of SocketTransport.

    Raises:
        TransportError: redis-cli was requested but can't load this template, or a cluster.
    """
    if options.transport != "redis-cli":
        return SocketTransport(options, server=server, **more)
    beyond = ""
    if more["resending"] is not None:
        beyond = "redis-cli --pipe can't resend a script that the server has forgotten"
    if is_cluster(options.server):
        beyond = "redis-cli --pipe can't load a whole cluster"
    if beyond:
        raise TransportError(Message(f"{beyond}; use ", Hint("transport", "socket")))
    return RedisCli(server, timeout=options.timeout, rate_limit=options.rate_limit)
