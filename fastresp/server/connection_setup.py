"""Check and prepare a connection: PING, scripts, confirmation by fsync, and import mode.

The functions receive a redis-py connection, and the name of the server for messages. They raise
TransportError if the server can't be used, and redis.RedisError or OSError if the connection is
lost.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis

from ..outcome.errors import CommandError, TransportError
from ..outcome.messages import Hint, Message, shown_reply
from .reply_parser import fields_of, parse_info

if TYPE_CHECKING:
    from ..encode.template import Scripts

__all__ = [
    "call", "check_alive", "check_fsync", "check_snapshot", "check_surplus", "expect",
    "load_scripts", "mark_import_source",
]  # fmt: skip


def check_alive(connection: Any, address: str) -> None:
    """Check that the server answers PING; a permission error is also an answer."""
    # An ACL may allow only the commands of the load.
    with suppress(redis.exceptions.NoPermissionError):
        expect(b"PONG", call(connection, "PING"), "PING", address)


def check_surplus(connection: Any, address: str) -> None:
    """Check that the server has not sent more replies than it received commands."""
    if connection._parser.surplus:
        raise TransportError(
            f"can't use the server at {address}: it sends more replies than commands were sent "
            "(check that this is Redis or Valkey, and that nothing else uses the same connection)"
        )


def load_scripts(connection: Any, address: str, scripts: Scripts) -> None:
    """Load scripts, and check that the user may run them."""
    for sha1, script in scripts.items():
        try:
            reply = call(connection, "SCRIPT", "LOAD", script)
            expect(sha1, reply, "SCRIPT LOAD", address)
            for name in ("EVALSHA", "EVAL"):
                try:
                    # Only checks the ACL: nothing runs, since "none" is not a number of keys.
                    call(connection, name, "", "none")
                except redis.exceptions.NoPermissionError:
                    raise
                except redis.ResponseError:
                    pass
        except redis.exceptions.NoPermissionError as error:
            raise TransportError(
                f"can't use the server at {address}: {error} (a script needs permission for SCRIPT "
                "LOAD, EVALSHA and EVAL: ACL SETUSER ... +script|load +evalsha +eval)"
            ) from error
        except redis.ResponseError as error:
            raise _refusal(error, script) from error


def check_fsync(connection: Any, address: str) -> None:
    """Check that the server can confirm with WAITAOF that commands are on disk.

    The connection must have no earlier writes.
    """
    fault = ""
    try:
        # Answered immediately, since there is nothing to sync yet.
        connection.send_command("WAITAOF", 1, 0, 1)
        connection.read_response()
    except redis.exceptions.NoPermissionError as error:
        fault = f"{error} (allow it with ACL SETUSER ... +waitaof)"
    except redis.ResponseError as error:
        fault = str(error)
        if "appendonly" in fault:
            fault = "it has no append-only file (switch it on: CONFIG SET appendonly yes)"
        elif fault.lower().startswith("unknown command"):
            fault = "it has no WAITAOF (use Redis 7.2 or later, or Valkey)"
    if not fault and _setting(connection, "appendfsync") == b"no":
        fault = "it never syncs its append-only file (CONFIG SET appendfsync everysec)"
    if fault:
        raise _not_durable("fsync", address, fault)


def check_snapshot(connection: Any, address: str) -> None:
    """Check that the server accepts BGSAVE, and reports whether it was successful."""
    fault = ""
    try:
        call(connection, "BGSAVE", "CHECK")  # a syntax error, found after the ACL was checked
    except redis.exceptions.NoPermissionError as error:
        fault = f"{error} (allow it with ACL SETUSER ... +bgsave)"
    except redis.ResponseError as error:
        if str(error).lower().startswith("unknown command"):
            fault = "it has no BGSAVE, as is usual for managed servers (leave the option out)"
    if not fault:
        try:
            if "rdb_last_save_time" not in parse_info(call(connection, "INFO", "persistence")):
                fault = "its INFO has no rdb_last_save_time"
        except redis.ResponseError as error:
            fault = f"{error} (allow it with ACL SETUSER ... +info)"
    if fault:
        raise _not_durable("snapshot", address, fault)


def _not_durable(durability: str, address: str, fault: str) -> TransportError:
    text = f" is not possible with the server at {address}: {fault}"
    return TransportError(Message(Hint("durable", durability), text))


def _setting(connection: Any, name: str) -> bytes:
    """Return a setting of a server; empty if the server refuses CONFIG GET."""
    with suppress(redis.ResponseError):
        value = fields_of(call(connection, "CONFIG", "GET", name)).get(name.encode())
        if isinstance(value, bytes):
            return value
    return b""


def mark_import_source(connection: Any, address: str) -> None:
    """Mark a connection as an import source, so that its commands see expired keys.

    Source: CLIENT IMPORT-SOURCE of Valkey 8.1 and later.
    """
    connection.send_command("CLIENT", "IMPORT-SOURCE", "ON")
    try:
        connection.read_response()
    except redis.ResponseError as error:
        reason = str(error)
        if isinstance(error, redis.exceptions.NoPermissionError):
            advice = "allow it with ACL SETUSER ... +client|import-source"
        elif "import mode" in reason:
            advice = "run CONFIG SET import-mode yes for the import, and CONFIG SET import-mode no"
            advice += " after it"
        else:
            advice = "this needs Valkey 8.1 or later"
        start = f"can't import into {address}: {reason} (nothing was sent; {advice}, or leave out "
        raise TransportError(Message(start, Hint("import_source"), ")")) from error


def expect(expected: bytes, reply: Any, question: str, address: str) -> None:
    """Check that a reply is as expected."""
    if reply != expected:
        raise TransportError(
            f"can't use the server at {address}: it answers {question} with {shown_reply(reply)} "
            "(check that this is Redis or Valkey, and that proxies in between pass on every reply)"
        )


def call(connection: Any, *command: str | bytes) -> Any:
    """Send a command over a redis-py connection, and return the reply; raises as redis-py does.

    If the connection is closed, the error names the command: some proxies close a connection
    because of an unknown command.
    """
    try:
        connection.send_command(*command)
        return connection.read_response()
    except redis.ConnectionError as error:
        if type(error) is redis.ConnectionError and str(error).startswith("Connection closed"):
            raise redis.ConnectionError(f"it closed the connection at {command[0]!s}") from error
        raise


def _refusal(error: Exception, script: bytes) -> CommandError:
    text = str(error)
    # redis-py removes the error code ERR, but no other.
    text = text if text.partition(" ")[0].isupper() else f"ERR {text}"
    refusal = CommandError(text, arguments=(b"SCRIPT", b"LOAD", script))
    refusal.add_note("fastresp: the server refuses the script; no command was sent")
    return refusal
