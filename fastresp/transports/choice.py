"""Which transport carries a load, and why."""

from __future__ import annotations

from collections.abc import Sequence

from ..encode.template import NO_SCRIPTS, Scripts
from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message
from ..server.answers import Answers
from ..server.programs import find_program
from ..server.rehearsal import Rehearsed
from ..server.settings import Server, ServerLike
from .base import Transport
from .cli_options import beyond_redis_cli
from .error_policy import ErrorPolicy
from .redis_cli import RedisCli
from .socket import SocketTransport

__all__ = ["TRANSPORTS", "check_cluster", "choose"]

TRANSPORTS = ("auto", "redis-cli", "socket")


def choose(
    transport: str,
    server: ServerLike,
    policy: ErrorPolicy,
    *,
    connections: int,
    timeout: float | None,
    rate_limit: float | None,
    scripts: Scripts = NO_SCRIPTS,
    rehearsal: Sequence[Rehearsed] = (),
) -> Transport:
    """Give the transport that was asked for; for ``"auto"``, redis-cli if it can do all of it.

    Raises:
        ValueError: there is no transport of that name.
        TransportError: redis-cli was asked for and can't do all of it; the server can't be used.
    """
    if transport not in TRANSPORTS:
        raise ValueError(f"transport is 'auto', 'redis-cli' or 'socket', not {transport!r}")
    where = Server(server)
    where.rehearsal = list(rehearsal)
    socket = SocketTransport(
        where,
        policy=policy,
        connections=connections,
        timeout=timeout,
        rate_limit=rate_limit,
        scripts=scripts,
    )
    beyond = _beyond_any_cli(policy, connections, rate_limit, scripts)
    if transport == "redis-cli":
        if beyond:
            raise TransportError(Message(f"{beyond}; use ", Hint("transport", "socket")))
        return RedisCli(where, timeout=timeout)
    if transport == "socket":
        return socket.because("transport='socket' was asked for")
    if not beyond and where.tls and not isinstance(server, str | None):
        beyond = "the settings of a client's TLS are more than redis-cli has options for"
    # The one in a wheel takes 2.4 times the server's own time, a socket 1.0: only by name.
    program = find_program("cli", "FASTRESP_CLI", wheels=False)
    if not beyond and program is None:
        beyond = "there is neither a redis-cli nor a valkey-cli on the PATH"
    if beyond or program is None:
        return socket.because(beyond)
    answers = where.ask(timeout)
    beyond = beyond_redis_cli(program, where, answers)
    if beyond:
        return socket.because(beyond)
    return RedisCli(where, timeout=timeout, answers=answers)


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


def _beyond_any_cli(
    policy: ErrorPolicy, connections: int, rate_limit: float | None, scripts: Scripts
) -> str:
    """What is asked for that no redis-cli can do, or an empty text."""
    if policy.needs_positions:
        return "redis-cli --pipe can't tell which command an error belongs to"
    if connections > 1:
        return "redis-cli --pipe has one connection"
    if scripts:
        return "redis-cli --pipe can't send a script again that the server has forgotten"
    if rate_limit is not None:
        return "redis-cli --pipe can't send at a limited rate"
    return ""
