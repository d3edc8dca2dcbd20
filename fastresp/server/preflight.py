"""What a connection requires of its server: check and prepare a connection when it is opened.

The functions receive a redis-py connection, and the name of the server for messages. They raise
TransportError if the server can't be used, and redis.RedisError or OSError if the connection is
lost.

A template's commands are checked, but not run: they are queued with MULTI and dropped with DISCARD.
A server checks the name, the number of arguments and the user's permissions before it queues a
command. So permission is needed for MULTI, but not for ``COMMAND INFO`` or ``ACL DRYRUN``. Without
permission for MULTI, nothing is checked in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import redis

from ..encode.fields import Field, Items, Pairs
from ..outcome.errors import CommandError, TransportError
from ..outcome.messages import Hint, Message, shown_reply
from ..resp.commands import REPLACE_SCRIPT, commands_with
from .reply_parser import fields_of, parse_info

if TYPE_CHECKING:
    from ..encode.template import Scripts, Template

__all__ = [
    "NOTHING", "Requirements", "OF_A_CONNECTION", "RESTORE", "Rejection", "SampleCommand", "call",
    "check_alive", "check_fsync", "check_snapshot", "check_surplus", "commands_over_any_keys",
    "commands_that_replace", "commands_without_items", "expect", "load_scripts",
    "mark_import_source", "preflight", "sample_commands",
]  # fmt: skip

# Commands that change the state of the connection, and so the meaning of later commands.
OF_A_CONNECTION = commands_with("multi", "end", "watch", "connection", "client")
# Commands that are not queued after MULTI. They run immediately or end the transaction. EVALSHA is
# also excluded, since it is checked when scripts are loaded.
NOT_QUEUED = {name.encode() for name in OF_A_CONNECTION | {"QUIT", "RESET", "HELLO", "EVALSHA"}}
# The placeholder for each value, because of which ACL rules for keys are not checked in advance.
VALUE = b"1"


class SampleCommand(NamedTuple):
    """A command of a template, with placeholders for its values."""

    arguments: tuple[bytes, ...]
    fixed_length: bool  # whether the number of arguments is the same in every row
    subcommand: bool  # whether the second argument is constant


# Replaces the template's commands in ``mode="serialize"``.
RESTORE = SampleCommand((b"RESTORE", VALUE, b"0", VALUE), fixed_length=True, subcommand=False)


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a connection is used for, and what is checked when it opens.

    Attributes:
        commands: commands that the server must accept.
        scripts: scripts to load, by SHA-1.
        optional_commands: a function that receives whether the server is a cluster node, and
            returns commands to try. Commands that the server refuses are in ``Answers.refused``.
        reading: whether nothing will be written, so that a replica suffices.
        nodes: whether to connect to all primaries of a cluster.
        slot: in a cluster, connect only to the node that serves this slot; None for all primaries.
        follow_redirects: whether the caller follows redirects, so that any cluster node suffices.
        fsync: whether the server must be able to confirm that commands are on disk.
        snapshot: whether BGSAVE will be sent at the end.
        encoding_limits: whether to read the settings that limit compact encodings.
        echo: whether to test ECHO, which redis-cli --pipe needs to find the last reply. Some
            proxies lack ECHO.
        import_source: whether our commands must see expired keys.
        indexes: whether to list the search indexes.
        himport: whether to ask if the server has HIMPORT.
        settings: settings to read for ``Answers.states``, in a cluster on each primary; if empty,
            there are no states.
    """

    commands: tuple[SampleCommand, ...] = ()
    scripts: Scripts = field(default_factory=dict)
    optional_commands: Callable[[bool], list[tuple[bytes, ...]]] | None = None
    reading: bool = False
    nodes: bool = False
    slot: int | None = None
    follow_redirects: bool = False
    fsync: bool = False
    snapshot: bool = False
    encoding_limits: bool = False
    echo: bool = False
    import_source: bool = False
    indexes: bool = False
    himport: bool = False
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, template: Template | None, **needs: Any) -> Self:
        """Return Requirements with a template's commands and scripts, and the fields ``needs``."""
        scripts = {} if template is None else template.scripts
        return cls(commands=tuple(sample_commands(template)), scripts=scripts, **needs)


class Rejection(NamedTuple):
    """A command that the server would refuse in every row, and its error reply."""

    name: str
    message: str
    permission: bool  # whether the user lacks a permission


NOTHING = Requirements()


def sample_commands(template: Template | None) -> list[SampleCommand]:
    """Return those commands of a template whose names are constant."""
    found: list[SampleCommand] = []
    for command in () if template is None else template.commands:
        if any(isinstance(part, Field) for part in command[0]):
            continue
        arguments: list[bytes] = []
        fixed_length = True
        for argument in command:
            several = [part for part in argument if isinstance(part, (Items, Pairs))]
            fixed_length = fixed_length and not several
            values = (part if isinstance(part, bytes) else VALUE for part in argument)
            arguments += (
                [VALUE] * (1 + isinstance(several[0], Pairs)) if several else [b"".join(values)]
            )
        if arguments[0].upper() not in NOT_QUEUED:
            second = command[1] if len(command) > 1 else ()
            constant = not any(isinstance(part, Field) for part in second)
            found.append(SampleCommand(tuple(arguments), fixed_length, constant))
    return found


def commands_without_items(template: Template | None) -> list[tuple[bytes, ...]]:
    """Return the commands with ``{*list}`` or ``{**}``, as sent for a row without any items."""
    found = []
    for command in () if template is None else template.commands:
        several = [any(isinstance(part, Items | Pairs) for part in parts) for parts in command]
        if any(several) and not any(isinstance(part, Field) for part in command[0]):
            constants = [[part for part in parts if isinstance(part, bytes)] for parts in command]
            pairs = zip(constants, several, strict=True)
            found.append(tuple(b"".join(parts) or VALUE for parts, items in pairs if not items))
    return found


def commands_over_any_keys(template: Template | None, cluster: bool) -> list[tuple[bytes, ...]]:
    """Return commands over arbitrary keys, to find out whether the server accepts them.

    With ``mode="merge"``, SET, DEL and UNLINK are merged into commands with many keys only if the
    server accepts these commands. It refuses them if the user lacks permission for some keys, or if
    it is a proxy that shards keys. The keys start and end with every possible byte, so that an ACL
    rule for some keys does not allow all of them. In a cluster, a hash tag puts them in one slot.
    """
    tag = b"{%s}" % token_hex(4).encode() if cluster else b""
    first = [bytes([n]) for n in range(256)]
    # A hash tag starts at the first brace.
    keys = [
        (tag if tag[:1] == byte else byte + tag) + token_bytes(8) + bytes([byte[0] ^ 0x55])
        for byte in first
    ]
    pairs = [part for key in keys for part in (key, VALUE)]
    optional = {
        # A user with permission for MSET, but not for SET, gets errors.
        b"SET": [
            (b"SET", keys[0], VALUE),
            (b"MSET", *pairs),
            (b"MSETEX", b"%d" % len(keys), *pairs, b"EX", b"100"),
        ],
        b"DEL": [(b"DEL", *keys)],
        b"UNLINK": [(b"UNLINK", *keys)],
    }
    used = set(optional)
    names = [command[0] for command in template.commands] if template else []
    if names and not any(isinstance(part, Field) for name in names for part in name):
        constants = ([part for part in name if isinstance(part, bytes)] for name in names)
        used &= {b"".join(parts).upper() for parts in constants}
    return [command for name in optional if name in used for command in optional[name]]


def commands_that_replace(cluster: bool) -> list[tuple[bytes, ...]]:
    """Return the commands that replace hashes, or that scripts run, to find out what is refused."""
    found: list[tuple[bytes, ...]] = [
        (b"HIMPORT", b"SET", VALUE, VALUE, VALUE),
        (b"EVAL", REPLACE_SCRIPT, b"1", VALUE, VALUE, VALUE),
    ]
    if cluster:
        others = (b"HLEN", VALUE), (b"HKEYS", VALUE), (b"HDEL", VALUE, VALUE), (b"PERSIST", VALUE)
        return [*found, *others]
    return [*found, (b"DEL", VALUE)]


def preflight(
    connection: Any,
    commands: Sequence[SampleCommand],
    optional: list[tuple[bytes, ...]],
    *,
    merges: bool = True,
) -> tuple[Rejection | None, frozenset[str]]:
    """Queue commands after MULTI on a redis-py connection, and discard them.

    Args:
        merges: whether the ``optional`` commands get the keys of several rows. Then they also count
            as refused if a key is denied: the server would refuse all rows for one denied key.

    Returns:
        (rejection, refused): the first command that would be refused in every row, or None; and
        the names of the refused ``optional`` commands.
    """
    for command in commands:
        connection.send_command(*command.arguments)
    for arguments in optional:
        connection.send_command(*arguments)
    connection.send_command("DISCARD")
    replies = [_reply(connection) for _ in commands]
    refused = [each[0].decode() for each in optional if _is_refusal(_reply(connection), merges)]
    if _reply(connection) is not None:
        # Permission for DISCARD is missing. All later commands would be queued forever.
        connection.disconnect()
        connection.connect()
    found = (_rejection(each, error) for each, error in zip(commands, replies, strict=True))
    return next(filter(None, found), None), frozenset(refused)


def _is_refusal(error: Exception | None, merges: bool) -> bool:
    """Return whether an optional command was refused; ``merges`` as for ``preflight()``.

    A redirect is not a refusal. Nor is an error about the server's state, such as OOM: servers
    check the command and the permissions first.
    """
    others = redis.exceptions
    if isinstance(error, others.NoPermissionError) and "to run the" not in str(error):
        return merges  # the sample key is denied, but others may be allowed
    accepted = (others.AskError, others.OutOfMemoryError, others.ReadOnlyError)
    states = ("NOREPLICAS ", "MISCONF ")
    return error is not None and not (isinstance(error, accepted) or str(error).startswith(states))


def _reply(connection: Any) -> Exception | None:
    """Read the next reply; return it if it is an error, else None."""
    try:
        connection.read_response()
    except redis.ConnectionError:
        raise
    except redis.ResponseError as error:
        return error
    return None


def _rejection(command: SampleCommand, error: Exception | None) -> Rejection | None:
    if error is None:
        return None
    message, name = str(error), command.arguments[0].decode(errors="backslashreplace").upper()
    if isinstance(error, redis.exceptions.NoPermissionError):
        return Rejection(name, message, True) if "to run the" in message else None
    message = message.removeprefix("ERR ").partition(", with args")[0]
    kind = message.lower()
    if (
        kind.startswith("unknown command")
        or (kind.startswith("unknown subcommand") and command.subcommand)
        or (kind.startswith("wrong number of arguments") and command.fixed_length)
    ):
        return Rejection(name, f"ERR {message}", False)
    return None


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
