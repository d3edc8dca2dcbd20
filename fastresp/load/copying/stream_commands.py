"""Translate the commands of a replication stream for the target of a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...encode.payload.format import format_of
from ...encode.payload.restorer import Restorer
from ...outcome.errors import SourceError
from ...replies.iter_replies import iter_replies
from ...resp.slots import SEVERAL, Rules
from ...resp.values import pack
from ...server.answers import Answers
from ...server.settings import Server

__all__ = ["StreamCommands", "in_database"]

Commands = list[list[bytes]]

# Options without and with a value that are conditions for a command to run. A source sends only
# commands that have run, so their conditions were met.
CONDITIONS = {b"NX": 1, b"XX": 1, b"GT": 1, b"LT": 1, b"FNX": 1, b"FXX": 1}
VALUE_CONDITIONS = {b"IFEQ": 2, b"IFNE": 2, b"IFDEQ": 2, b"IFDNE": 2}
# Options of streams since Redis 7.0; older servers do not store these numbers.
COUNTERS = {b"ENTRIESREAD": 2, b"ENTRIESADDED": 2, b"MAXDELETEDID": 2}
# Options of XADD in any version: without a value, and for trimming, with a value.
XADD_FLAGS = {b"NOMKSTREAM", b"KEEPREF", b"DELREF", b"ACKED"}
TRIM = {b"MAXLEN", b"MINID"}
# The default of Redis 8.2; older servers have no other choice.
KEEPS_REFERENCES = {b"KEEPREF": 1}
# Commands that change keys although they lack the flag "write": PFCOUNT stores its result.
WITHOUT_FLAG = {b"PFCOUNT", b"XGROUP"}
FIELD_EXPIRIES = {b"HPEXPIREAT", b"HPEXPIRE", b"HEXPIREAT", b"HEXPIRE", b"HPERSIST"}
# Commands that are split by key for a cluster, and the number of arguments per key.
SPLIT = {b"DEL": 1, b"MSET": 2, b"UNLINK": 1}


class StreamCommands:
    """Translates commands into commands with the same effect on a target of another version.

    Args:
        target: the target.
        answers: the answers of the target, with its version.
        restorer: adapts the payloads of RESTORE.
        drop_expiries: whether to drop times to live of fields if the target does not support them.
        timeout: seconds to wait for each reply; None to wait forever.
    """

    def __init__(
        self,
        target: Server,
        answers: Answers,
        restorer: Restorer,
        drop_expiries: bool,
        timeout: float | None,
    ) -> None:
        self._target = target
        self._rules = Rules(answers.positions) if answers.cluster else None
        self._counters = format_of(answers.version, {}, valkey=answers.valkey).rdb_version >= 10
        self._restorer = restorer
        self._drop_expiries = drop_expiries
        self._timeout = timeout
        self._writes: dict[bytes, bool] = {}  # whether the target knows a command, and it writes

    def translated(self, command: list[bytes]) -> Commands | None:
        """Return the commands with the same effect on the target; None if that is impossible.

        Raises:
            SourceError: a value is damaged or can't be stored in the target, or the keys are in
                several slots of a cluster.
            ValueError, IndexError: the arguments are invalid.
        """
        commands = self._translated(command[0].upper(), command)
        if not all(self._is_write(each[0].upper()) for each in commands):
            return None
        if self._rules is None:
            return commands
        commands = [part for each in commands for part in by_key(each)]
        if any(self._rules.slot(pack(*each), every=True) == SEVERAL for each in commands):
            raise SourceError("its keys are in several slots of the target's cluster")
        return commands

    def _translated(self, name: bytes, command: list[bytes]) -> Commands:
        if name in (b"RESTORE", b"RESTORE-ASKING"):
            return self._restored(command)
        if not self._counters and name in (b"XGROUP", b"XSETID"):
            return [without(command, 5 if name == b"XGROUP" else 3, COUNTERS)]
        if name == b"HSETEX" and self._has_no_expiry(command):
            return [hset(command)]
        if self._drop_expiries and name in FIELD_EXPIRIES and not self._is_write(name):
            return []
        translate = TRANSLATED.get(name)
        return [command] if translate is None else translate(command)

    def _has_no_expiry(self, command: list[bytes]) -> bool:
        """Return whether this HSETEX neither sets nor keeps a time to live in the target.

        Redis 8 replicates HINCRBYFLOAT as an HSETEX with KEEPTTL.
        """
        if self._is_write(b"HPEXPIREAT"):
            return self._drop_expiries and not self._is_write(b"HSETEX")
        options = [*map(bytes.upper, command[2 : fields_of(command)])]
        return self._drop_expiries or b"KEEPTTL" in options

    def _restored(self, command: list[bytes]) -> Commands:
        """Return a RESTORE with a payload for the target."""
        _, key, expiry, payload, *options = command
        rows = self._restorer.dumped_rows([-1, payload], iter([key]))
        if self._restorer.error is not None:
            raise self._restorer.error
        if rows:
            return [[b"RESTORE", key, expiry, rows[0][2], *options]]
        # All fields of the hash have expired.
        return [[b"DEL", key]] if b"REPLACE" in map(bytes.upper, options) else []

    def _is_write(self, name: bytes) -> bool:
        """Return whether a command exists in the target and changes keys."""
        if name not in self._writes:
            [[found]] = iter_replies(
                [(b"COMMAND", b"INFO", name)],
                server=self._target.any_node(),
                timeout=self._timeout,
            )
            writes = bool(found) and b"write" in map(_flag, found[2])
            self._writes[name] = writes or (bool(found) and name in WITHOUT_FLAG)
        return self._writes[name]


def in_database(
    name: bytes, command: list[bytes], database: int, wanted: int
) -> list[bytes] | None:
    """Return a command with the same effect on the keys of one database.

    Args:
        name: the command's name, in capitals.
        command: the command.
        database: the database in which the source ran the command.
        wanted: the copied database.

    Returns:
        The command; an empty list if it does not change the copied database; None if its effect
        needs data that only the source has.
    """
    ours = database == wanted
    if name == b"FLUSHALL" or (name == b"FLUSHDB" and ours):
        return None
    if name == b"SWAPDB":
        return None if wanted in map(int, command[1:]) else []
    if name in (b"MOVE", b"COPY"):
        options = [*map(bytes.upper, command[3:])]
        at = options.index(b"DB") + 4 if b"DB" in options else 0
        other = int(command[2 if name == b"MOVE" else at]) if name == b"MOVE" or at else database
        if other != database:
            if not ours:
                return None if other == wanted else []
            return [b"DEL", command[1]] if name == b"MOVE" else []
    return command if ours else []


def without(command: list[bytes], at: int, options: dict[bytes, int]) -> list[bytes]:
    """Return a command without some options.

    Args:
        command: the command.
        at: index of the first argument that may be an option.
        options: for each option to remove, its number of arguments, including the name.
    """
    kept, rest = command[:at], command[at:]
    while rest:
        size = options.get(rest[0].upper(), 0)
        if not size:
            kept.append(rest[0])
        rest = rest[size or 1 :]
    return kept


def hset(command: list[bytes]) -> list[bytes]:
    """Convert an HSETEX to an HSET, without the time to live."""
    return [b"HSET", command[1], *command[fields_of(command) + 2 :]]


def fields_of(command: list[bytes]) -> int:
    """Return the index of FIELDS in an HSETEX."""
    return [*map(bytes.upper, command)].index(b"FIELDS", 2)


def _hsetex(command: list[bytes]) -> Commands:
    at = fields_of(command)
    options = without(command[:at], 2, CONDITIONS)
    return [hset(command) if len(options) == 2 else [*options, *command[at:]]]


def _hgetdel(command: list[bytes]) -> Commands:
    return [[b"HDEL", command[1], *command[4:]]]


def _msetex(command: list[bytes]) -> Commands:
    end = 2 + 2 * int(command[1])
    options = without(command[end:], 0, CONDITIONS)
    pairs = zip(command[2:end:2], command[3:end:2], strict=True)
    return [[b"SET", key, value, *options] for key, value in pairs]


def _xadd(command: list[bytes]) -> Commands:
    at = 2
    while (option := command[at].upper()) in XADD_FLAGS | TRIM | {b"LIMIT"}:
        about = option in TRIM and command[at + 1] in (b"=", b"~")
        at += 1 if option in XADD_FLAGS else 2 + about
    return [[*without(command[:at], 2, KEEPS_REFERENCES), *command[at:]]]


def _xdelex(command: list[bytes]) -> Commands:
    options = without(command, 2, KEEPS_REFERENCES)
    if options[2].upper() != b"IDS":  # another option, so it also changes groups
        return [command]
    return [[b"XDEL", command[1], *options[4:]]]


# Commands with the same effect that older servers know.
TRANSLATED: dict[bytes, Callable[[list[bytes]], Commands]] = {
    b"SET": lambda command: [without(command, 3, CONDITIONS | VALUE_CONDITIONS)],
    b"PEXPIREAT": lambda command: [without(command, 3, CONDITIONS)],
    b"PEXPIRE": lambda command: [without(command, 3, CONDITIONS)],
    b"XADD": _xadd,
    b"XTRIM": lambda command: [without(command, 2, KEEPS_REFERENCES)],
    b"XDELEX": _xdelex,
    b"HSETEX": _hsetex,
    b"HGETDEL": _hgetdel,
    b"MSETEX": _msetex,
}


def by_key(command: list[bytes]) -> Commands:
    """Split a command that is in SPLIT into one per key; return other commands unchanged."""
    name, *keys = command
    size = SPLIT.get(name.upper(), 0)
    if not size or len(keys) % size:
        return [command]
    name = b"SET" if size > 1 else name
    return [[name, *keys[at : at + size]] for at in range(0, len(keys), size)]


def _flag(reply: Any) -> bytes:
    """Return a flag from COMMAND INFO as bytes; servers send it as a status or a string."""
    return reply.encode() if isinstance(reply, str) else b"%b" % reply
