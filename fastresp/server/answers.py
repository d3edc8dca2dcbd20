"""What a server says of itself when it is asked, before a load, whether it can take it."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..encode.template import Scripts
from ..outcome.errors import CommandError, FastrespError, TransportError
from ..outcome.excerpts import shown_reply
from ..resp.grammar import BULK_BYTES
from .rehearsal import Refused, Rehearsed, rehearse

__all__ = ["Answers", "ask", "check_alive", "check_surplus", "load_scripts", "parse_info"]

# The least proto-max-bulk-len that can be set. Source: config.c.
LEAST_BULK_BYTES = 1 << 20


@dataclass(frozen=True)
class Answers:
    """What a server said of itself."""

    version: str | None
    cluster: bool
    # The server's words when it refuses ECHO, which redis-cli --pipe needs to know the end.
    echo_refused: str | None
    # The largest argument that it takes.
    max_bulk_bytes: int
    # Where the connection went: Sentinel may have chosen it.
    host: str | None
    port: int | None


def ask(connection: Any, place: str, rehearsal: list[Rehearsed], *, reading: bool) -> Answers:
    """Ask a server whether it can take a load.

    Args:
        connection: one of redis-py.
        place: the name of the server.
        rehearsal: commands that it is to take.
        reading: nothing will be written, so that a replica will do.

    Raises:
        TransportError: it can't be used.
        CommandError: it does not take one of the commands.
        redis.RedisError, OSError: the connection is lost, or refused.
    """
    import redis

    check_alive(connection, place)
    try:
        _expect(b"fastresp", _call(connection, "ECHO", "fastresp"), "ECHO fastresp", place)
        echo_refused = None
    except redis.exceptions.NoPermissionError as error:
        echo_refused = str(error)
    info: dict[str, str] = {}
    with suppress(redis.ResponseError):
        info = parse_info(_call(connection, "INFO"))
    most = BULK_BYTES
    connection.send_command("CONFIG", "GET", "proto-max-bulk-len")
    if rehearsal:
        connection.send_command("MULTI")  # together, to save a round trip
    with suppress(redis.ResponseError):
        most = _bulk_limit(connection.read_response())
    refused = None
    if rehearsal:
        with suppress(redis.ResponseError):
            connection.read_response()
            refused = rehearse(connection, rehearsal)
    _check_state(info, place, reading=reading)
    if refused is not None:
        raise _refused(refused, place)
    return Answers(
        version=info.get("valkey_version") or info.get("redis_version"),
        cluster=info.get("cluster_enabled") == "1",
        echo_refused=echo_refused,
        max_bulk_bytes=most,
        host=getattr(connection, "host", None),
        port=getattr(connection, "port", None),
    )


def _check_state(info: dict[str, str], place: str, *, reading: bool) -> None:
    """Refuse a server that can't be written to."""
    replica = info.get("role") == "slave" and info.get("slave_read_only") == "1"
    if replica and not reading:
        raise TransportError(
            f"{place} is a read-only replica; load into its master, "
            f"{info.get('master_host')}:{info.get('master_port')}"
        )
    if info.get("loading") == "1":
        raise TransportError(f"{place} is still loading its data from disk; try again later")


def check_alive(connection: Any, place: str) -> None:
    """Refuse a server that does not answer PING."""
    import redis

    # An ACL may allow little else than the load.
    with suppress(redis.exceptions.NoPermissionError):
        _expect(b"PONG", _call(connection, "PING"), "PING", place)


def check_surplus(connection: Any, place: str) -> None:
    """Refuse a server that has said more than it was asked."""
    if connection._parser.surplus:
        raise TransportError(
            f"can't use the server at {place}: it sends more replies than there were commands "
            "(check that this is Redis or Valkey, and that nobody else writes to it over the "
            "same connection)"
        )


def load_scripts(connection: Any, place: str, scripts: Scripts) -> None:
    """Load scripts, and see to it that they may be run.

    Raises:
        TransportError: the user has no right to it.
        CommandError: the server refuses a script.
        redis.RedisError, OSError: the connection is lost.
    """
    import redis

    for sha1, script in scripts.items():
        try:
            reply = _call(connection, "SCRIPT", "LOAD", script)
            _expect(sha1, reply, "SCRIPT LOAD", place)
            for name in ("EVALSHA", "EVAL"):
                try:
                    # Runs nothing, for its number of keys is none: only the ACL is asked.
                    _call(connection, name, "", "none")
                except redis.exceptions.NoPermissionError:
                    raise
                except redis.ResponseError:
                    pass
        except redis.exceptions.NoPermissionError as error:
            raise TransportError(
                f"can't use the server at {place}: {error} (a script needs the rights to SCRIPT "
                "LOAD, EVALSHA and EVAL: ACL SETUSER ... +script|load +evalsha +eval)"
            ) from error
        except redis.ResponseError as error:
            raise _refusal(error, script) from error


def _expect(reply: bytes, found: Any, question: str, place: str) -> None:
    """Refuse a server whose replies are not those to its commands."""
    if found != reply:
        raise TransportError(
            f"can't use the server at {place}: it answers {question} by {shown_reply(found)} "
            "(check that this is Redis or Valkey, and that what is in between passes on every "
            "reply)"
        )


def _call(connection: Any, *command: str | bytes) -> Any:
    """The reply to a command over a redis-py connection; errors are redis-py's."""
    connection.send_command(*command)
    return connection.read_response()


def _refused(refused: Refused, place: str) -> FastrespError:
    """The exception for a command of the template that the server takes for no row."""
    if refused.right:
        return TransportError(
            f"can't use the server at {place}: {refused.words} (nothing was sent; allow it "
            f"with ACL SETUSER ... +{refused.name.lower()})"
        )
    error = CommandError(refused.words)
    error.add_note(f"fastresp: the server refuses this {refused.name}; no command was sent")
    return error


def _refusal(error: Exception, script: bytes) -> CommandError:
    """The exception for a script that a server does not load."""
    words = str(error)
    # redis-py leaves out this code, and no other one.
    text = words if words.partition(" ")[0].isupper() else f"ERR {words}"
    refusal = CommandError(text, arguments=(b"SCRIPT", b"LOAD", script))
    refusal.add_note("fastresp: the server refuses the script; no command was sent")
    return refusal


def _bulk_limit(reply: Any) -> int:
    """The largest argument, from an answer to CONFIG GET; what is usual where it does not tell."""
    try:
        most = int(reply[1])
    except (TypeError, ValueError, IndexError):
        return BULK_BYTES
    return most if LEAST_BULK_BYTES <= most <= sys.maxsize else BULK_BYTES


def parse_info(reply: Any) -> dict[str, str]:
    """Read the fields of an answer to INFO; none where it is something else."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    if not isinstance(text, str):
        return {}
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
