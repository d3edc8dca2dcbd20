"""Choose the transport of a load."""

from __future__ import annotations

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message
from ..server.options import ACKNOWLEDGED, Options
from ..server.settings import Server
from ..server.url_or_client import is_cluster
from .base import Transport
from .error_policy import ErrorPolicy
from .redis_cli import RedisCli
from .resend import Resending
from .socket import SocketTransport

__all__ = ["TRANSPORTS", "beyond_any_cli", "choose"]

TRANSPORTS = ("auto", "redis-cli", "socket")


def choose(
    options: Options, server: Server, policy: ErrorPolicy, resending: Resending | None
) -> Transport:
    """Return the requested transport; for ``"auto"``, the socket.

    Raises:
        ValueError: there is no transport of that name.
        TransportError: redis-cli was requested but can't do it.
    """
    transport = options.transport
    if transport not in TRANSPORTS:
        raise ValueError(f"transport must be 'auto', 'redis-cli' or 'socket', not {transport!r}")
    if transport != "redis-cli":
        return SocketTransport(options, server=server, policy=policy, resending=resending)
    beyond = beyond_any_cli(options, policy, resending)
    if is_cluster(options.server):
        beyond = "redis-cli --pipe can't load a whole cluster"
    if beyond:
        raise TransportError(Message(f"{beyond}; use ", Hint("transport", "socket")))
    return RedisCli(server, timeout=options.timeout, rate_limit=options.rate_limit)


def beyond_any_cli(
    options: Options, policy: ErrorPolicy, resending: Resending | None = None
) -> str:
    """Return which requested option no redis-cli supports; "" if there is none."""
    if policy.needs_positions:
        return "redis-cli --pipe can't tell which command an error belongs to"
    if options.connections > 1:
        return "redis-cli --pipe opens one connection only"
    if resending is not None:
        return "redis-cli --pipe can't resend a script that the server has forgotten"
    if options.retry not in (None, "never"):
        return "redis-cli --pipe can't connect again"
    if options.durability != ACKNOWLEDGED:
        return "redis-cli --pipe can't wait until commands are durable"
    if options.checkpoint is not None:
        return "redis-cli --pipe can't keep a checkpoint"
    if options.import_source:
        return "redis-cli --pipe can't mark its connection as that of an import"
    if options.index_backlog is not None:
        return "redis-cli --pipe can't pause for an index"
    if options.mode == "serialize":
        return "redis-cli --pipe can't tell which key an error belongs to"
    return ""
