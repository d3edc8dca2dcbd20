"""Which transport carries a load, and why."""

from __future__ import annotations

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message
from ..server.answers import Answers
from ..server.options import Options
from ..server.programs import find_program
from ..server.settings import Server
from .base import Transport
from .cli_options import beyond_redis_cli
from .error_policy import ErrorPolicy
from .redis_cli import RedisCli
from .resend import Resending
from .socket import SocketTransport

__all__ = ["TRANSPORTS", "beyond_any_cli", "check_cluster", "choose"]

TRANSPORTS = ("auto", "redis-cli", "socket")


def choose(
    options: Options, server: Server, policy: ErrorPolicy, resending: Resending | None
) -> Transport:
    """Give the transport that was asked for; for ``"auto"``, redis-cli if it can do all of it.

    Raises:
        ValueError: there is no transport of that name.
        TransportError: redis-cli was asked for and can't do all of it; the server can't be used.
    """
    transport, timeout = options.transport, options.timeout
    if transport not in TRANSPORTS:
        raise ValueError(f"transport is 'auto', 'redis-cli' or 'socket', not {transport!r}")
    beyond = beyond_any_cli(options, policy, resending)
    if transport == "redis-cli":
        if beyond:
            raise TransportError(Message(f"{beyond}; use ", Hint("transport", "socket")))
        return RedisCli(server, timeout=timeout)
    answers = None
    program = find_program("cli", "FASTRESP_CLI", wheels=False)
    if transport == "socket":
        beyond = "transport='socket' was asked for"
    elif beyond:
        pass
    elif server.tls and not isinstance(options.server, str | None):
        beyond = "the settings of a client's TLS are more than redis-cli has options for"
    elif program is None:
        # The one in a wheel takes 2.4 times the server's own time, a socket 1.0: only by name.
        beyond = "there is neither a redis-cli nor a valkey-cli on the PATH"
    else:
        answers = server.ask(timeout)
        beyond = beyond_redis_cli(program, server, answers)
    if not beyond:
        return RedisCli(server, timeout=timeout, answers=answers)
    return SocketTransport(options, server=server, policy=policy, resending=resending).because(
        beyond
    )


def check_cluster(answers: Answers | None, server: Server, transport: str) -> None:
    """Refuse a node of a cluster, unless the socket was asked for by name.

    Raises:
        TransportError: most of the load would be answered by MOVED.
    """
    if transport == "auto" and answers is not None and answers.cluster:
        message = Message(
            f"the server at {server} is part of a cluster, and this version does not follow "
            "MOVED; ",
            Hint("transport", "socket"),
            " loads the keys of that one node, and reports each of the others as a MOVED error",
        )
        raise TransportError(message)


def beyond_any_cli(
    options: Options, policy: ErrorPolicy, resending: Resending | None = None
) -> str:
    """What is asked for that no redis-cli can do, or an empty text."""
    if policy.needs_positions:
        return "redis-cli --pipe can't tell which command an error belongs to"
    if options.connections > 1:
        return "redis-cli --pipe has one connection"
    if resending is not None:
        return "redis-cli --pipe can't send a script again that the server has forgotten"
    if options.rate_limit is not None:
        return "redis-cli --pipe can't send at a limited rate"
    return ""
