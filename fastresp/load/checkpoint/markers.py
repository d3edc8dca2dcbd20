"""The markers of a checkpoint: keys that store how many rows have run.

If the user lacks permission for CLIENT KILL, markers also stop the previous loader's commands: each
transaction is then a call of a script that first checks a marker. The value of a marker starts with
a random token of its loader, which the next loader replaces with its own. Scripts of the previous
loader that are still in flight then find an unexpected token, and do nothing.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import redis

from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import Hint, Message
from ...resp.slots import UNKNOWN, Rules, tags
from ...resp.values import pack
from ...server.options import MAX_CONNECTIONS
from ...server.reply_parser import bytes_of
from ...sources.files.command_files import argument_of
from ...transports.resend import TAKEN_OVER
from .links import Link, Links

__all__ = ["FENCE_BYTES", "MERGED_ITEMS", "RUN", "Markers", "has_run", "may_fence"]

# Bytes of the random token, written as hexadecimal digits.
FENCE_BYTES = 8
# Maximum items of a merged command. A command with this many items, each of at most three
# arguments, has fewer arguments than SCRIPTED_WORDS of resp/transactions.pyx.
MERGED_ITEMS = 2_000
# A CLIENT ID that no connection has. With 0, Redis 6.2 would close all other connections.
NOBODY = (1 << 63) - 1

# Runs commands if the marker has the expected value; see Batcher for the arguments. Returns an
# array with one element for each command up to the last failed command: the error, or 0 if the
# command succeeded. An array reply that contains an error, such as BF.MADD's, is returned whole.
#
# The marker is set first: a server that refuses writes (OOM, READONLY, MISCONF ...) refuses this
# write, and nothing has run. After a script's first write, the server accepts all other writes of
# the script, and SCRIPT KILL does nothing. Source: luaRedisGenericCommand() in scripting.c of Redis
# 6.2, script.c of Redis 7. Redis 6.2 prefixes its own errors with the position in the script.
RUN = (
    b"""redis.replicate_commands()
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {err = '%sthe marker has another value'}
end
local function told(reply)
  local text, places = string.gsub(reply.err, '^@user_script: %%d+: ', '')
  text = string.gsub(text, ' script: %%x+, on @user_script:%%d+%%.$', '')
  if places > 0 then
    text = string.gsub(string.gsub(text, '%%s+$', ''), '^%%-', '')
    if not string.find(text, '^%%u+ ') then
      text = 'ERR ' .. text
    end
  end
  return {err = text}
end
local function fails(reply)
  if reply.err then
    return true
  end
  for _, each in ipairs(reply) do
    if type(each) == 'table' and fails(each) then
      return true
    end
  end
  return false
end
local run, unpack, words, stop = redis.pcall, unpack, ARGV, #ARGV
local set = run('SET', KEYS[1], words[stop])
if set.err then
  return told(set)
end
local errors, count, at = {}, 0, 2
while at < stop do
  local last = at + words[at]
  local reply = run(unpack(words, at + 1, last))
  count = count + 1
  if type(reply) == 'table' and fails(reply) then
    for number = #errors + 1, count - 1 do
      errors[number] = 0
    end
    errors[count] = reply.err and told(reply) or reply
  end
  at = last + 1
end
return errors
"""
    % TAKEN_OVER
)

# Replaces the token in each marker, then changes the description: if a marker can't be set, the
# previous loader stays the owner. Keys: the markers, then the description. Arguments: the prefix
# of the markers of this checkpoint (the generation), the new prefix (generation and token), and
# the fields of the description. Markers of a different generation are left unchanged.
FENCE = b"""for number = 1, #KEYS - 1 do
  local key = KEYS[number]
  local value = redis.call('GET', key)
  if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
    redis.call('SET', key, ARGV[2] .. string.match(value, '[^:]*$'))
  end
end
redis.call('HSET', KEYS[#KEYS], unpack(ARGV, 3))
"""

# Sets the markers whose values start with a prefix; returns the number of markers that were not
# set. Arguments: the prefix, the new values.
LEVEL = b"""local others = 0
for number, key in ipairs(KEYS) do
  if string.sub(redis.call('GET', key) or '', 1, #ARGV[1]) == ARGV[1] then
    redis.call('SET', key, ARGV[number + 1])
  else
    others = others + 1
  end
end
return others
"""

# Uses the features that RUN needs, without changing anything: servers other than Redis and Valkey
# may lack a function, or require that each key is declared.
PROBE = "redis.replicate_commands() return redis.call('EXISTS', ARGV[1])"
# The value of a marker, without the generation: the loader's token, if any, and the number of rows.
ROWS = re.compile(rb"(?:[0-9a-f]{%d}:)?([0-9]{1,18})" % (2 * FENCE_BYTES))


def may_fence(links: Links, names: Iterable[str]) -> bool:
    """Return whether the user lacks permission for CLIENT KILL, and scripts can replace it.

    False if the user also lacks permission for scripts, or if a command can't be used in a script.
    Always False in a cluster: a script can declare only the marker's key, so a node whose slot is
    being moved would run the script, but refuse some of its commands.
    """
    home = links.home
    if links.topology is not None:
        return False
    with home.explained():
        if _answer(home, "CLIENT", "KILL", "ID", NOBODY) is not None:
            return False
        if _answer(home, "EVAL", PROBE, 0, links.name) is None:
            return False
        found = _answer(home, "COMMAND", "INFO", *names)
    return isinstance(found, list) and all(map(_runs_in_scripts, found))


def _answer(link: Link, *words: Any) -> Any:
    """Return the reply to a command; None for an error reply."""
    try:
        return link.call(*words)
    except redis.ResponseError:
        return None


def _runs_in_scripts(info: Any) -> bool:
    """Return whether scripts may run a command and all its subcommands."""
    if not isinstance(info, list) or len(info) < 3 or not isinstance(info[2], list):
        return False
    flags, subcommands = info[2], info[9] if len(info) > 9 else []
    if not isinstance(subcommands, list):
        return False
    return b"noscript" not in flags and all(map(_runs_in_scripts, subcommands))


class Markers:
    """The markers of a checkpoint.

    One connection needs one marker, because its commands run in order. Several connections have one
    marker each. A cluster has one marker per slot, stored in the slot: so the marker is moved,
    persisted, replicated and lost together with the slot's data. If there are several markers,
    their values start with the generation: random digits that distinguish this checkpoint from a
    deleted checkpoint of the same name.

    Args:
        name: name of the checkpoint.
        hash_key: the key of the checkpoint's description.
        links: connections to all servers.
        connections: number of connections of the load.
        batched: whether the load's commands are sent in transactions, which set the markers.
    """

    def __init__(
        self, name: str, hash_key: bytes, links: Links, connections: int, *, batched: bool
    ) -> None:
        self.kind = "one"
        self.keys = [hash_key + b":row"]
        of_connections = [b"%s:row:%d" % (hash_key, number) for number in range(MAX_CONNECTIONS)]
        # The markers of this checkpoint for every number of connections.
        self.of_all = self.keys + of_connections
        if links.topology is not None:
            self.kind = "of slots"
            self.keys = [b"fastresp:{%s}:%s:row" % (tag, name.encode()) for tag in tags()]
        elif batched and connections > 1:
            self.kind = f"of {connections} connections"
            self.keys = of_connections[:connections]
        self._generation = b""  # empty if there is one marker
        # Whether all markers were set when the load started: a missing marker was then removed.
        self.complete = links.topology is None
        # The run IDs of the servers at the start of the previous load.
        self._runs: Collection[str] = ()
        # Prefix of each value: the generation, and the loader's token, if any.
        self.prefix = b""
        self.fenced = False  # whether scripts set the markers, so that values start with a token
        self._ran = array("q", bytes(8 * len(self.keys)))
        self.links = links
        self._name = name
        self._hash = hash_key

    @property
    def several(self) -> bool:
        """Whether there are several markers, whose values start with the generation."""
        return len(self.keys) > 1

    def begin(self, generation: str, fence: str) -> None:
        """Set the prefix of all values: the generation, and ``fence``, the loader's token."""
        self._generation = f"{generation}:".encode() if self.several else b""
        self.prefix = self._generation + (f"{fence}:".encode() if fence else b"")

    def expect(self, complete: bool, runs: Collection[str]) -> None:
        """Remember the state in which earlier loads left the markers.

        Args:
            complete: whether earlier loads had set all markers.
            runs: the run IDs of the servers at the start of the previous load.
        """
        self.complete, self._runs = complete, runs

    def setting(self, row: int) -> list[tuple[Any, ...]]:
        """Return the commands that set all markers to ``row``."""
        return [("SET", key, self.prefix + str(row).encode()) for key in self.keys]

    def fencing(self, words: Sequence[Any]) -> tuple[Any, ...]:
        """Return the command that makes the scripts of the previous loader do nothing."""
        keys = (*self.keys, self._hash)
        return ("EVAL", FENCE, len(keys), *keys, self._generation, self.prefix, *words)

    def reached(self, row: int) -> array[int]:
        """Return the number of rows that ``level(row)`` stores in each marker."""
        return array("q", [max(row, ran) for ran in self._ran])

    def read(self) -> array[int]:
        """Read all markers: return for each marker how many rows have run.

        Raises:
            CheckpointError: a marker is missing, or is not a number of rows.
            TransportError: a server does not answer.
        """
        rows = array("q", bytes(8 * len(self.keys)))
        for link, numbers in self._by_link():
            with link.explained():
                values = link.replies([("GET", self.keys[number]) for number in numbers])
                found = [self._row(*each) for each in zip(numbers, values, strict=True)]
                self._check_missing(link, numbers, found)
            for number, row in zip(numbers, found, strict=True):
                rows[number] = row or 0
        self._ran = rows
        return rows

    def _check_missing(self, link: Link, numbers: list[int], found: list[int | None]) -> None:
        """Check that a server has all its markers.

        Markers may be missing if the server has no rows of the load. They then count as 0: either
        they were never set, or the server has lost them and all later writes, such as the rows.
        """
        most = max((row or 0 for row in found), default=0)
        if None not in found or (most == 0 and self._may_lack(link)):
            return
        raise self._damaged(numbers[found.index(None)], "is missing or belongs to another load")

    def _may_lack(self, link: Link) -> bool:
        """Return whether a server may lack markers: not all were set, or the server lost data."""
        if not self.complete:
            return True
        if self.links.topology is None:  # a single server would also have lost the description
            return False
        self.complete = False  # so that the markers are set again
        replaced = bool(link.run and all(self._runs)) and link.run not in self._runs
        return replaced or link.call("DBSIZE") == 0

    def exist(self) -> bool:
        """Return whether a marker of any generation exists."""
        for link, numbers in self._by_link():
            with link.explained():
                if any(link.together(*[("EXISTS", self.keys[number]) for number in numbers])):
                    return True
        return False

    def _row(self, number: int, value: Any) -> int | None:
        """Return the number of rows in a marker's value.

        None if the marker is missing or has a different generation.
        """
        if isinstance(value, Exception):
            if str(value).startswith("WRONGTYPE"):
                raise self._damaged(number)
            raise value
        if value is None or not bytes_of("GET", value).startswith(self._generation):
            return None
        found = ROWS.fullmatch(value.removeprefix(self._generation))
        if found is None:
            raise self._damaged(number)
        return int(found[1])

    def _damaged(self, number: int, how: str = "is not a number of rows") -> CheckpointError:
        return CheckpointError(
            Message(
                f"the marker {self.keys[number].decode()} of checkpoint {self._name!r} {how}, so "
                "it is unknown which rows were loaded: check the data, and start over with ",
                Hint("checkpoint_clear", True),
            )
        )

    def level(self, row: int) -> bool:
        """Set all markers to ``row``; all rows before ``row`` must have run.

        A marker that was higher when the load started keeps its number. If a marker can't be set,
        this is no error: a resumed load then starts at an earlier row.

        Returns:
            Whether all markers were set.
        """
        values = [self.prefix + str(each).encode() for each in self.reached(row)]
        if self.fenced:
            words = ("EVAL", LEVEL, len(self.keys), *self.keys, self.prefix, *values)
            with suppress(OSError, redis.RedisError):
                return not self.links.home.call(*words)
            return False
        failed = 0
        for link, numbers in self._by_link():
            failed += 1
            with suppress(OSError, redis.RedisError):
                found = link.replies(
                    [("SET", self.keys[number], values[number]) for number in numbers]
                )
                failed -= not any(isinstance(reply, Exception) for reply in found)
        return not failed

    def delete(self) -> None:
        """Delete all markers."""
        for link, numbers in self._by_link():
            with link.explained():
                link.together(*[("DEL", self.keys[number]) for number in numbers])

    def _by_link(self) -> Sequence[tuple[Link, list[int]]]:
        """Return the connection to each server, with the indexes of the server's markers."""
        topology = self.links.topology
        if topology is None:
            return [(self.links.home, [*range(len(self.keys))])]
        found: list[list[int]] = [[] for _ in topology.nodes]
        for slot, node in enumerate(topology.slots):
            if node < 0:
                raise TransportError(
                    f"can't read checkpoint {self._name!r}: no node serves slot {slot:,} (check "
                    "the cluster with redis-cli --cluster check)"
                )
            found[node].append(slot)
        return list(zip(self.links.all, found, strict=True))


def has_run(markers: Markers, ran: array[int], fields: dict[str, Any]) -> bool:
    """Return whether the row of a rejected command has run, so that it is not loaded again.

    Args:
        markers: the markers of the checkpoint.
        ran: for each marker, how many rows have run.
        fields: the command's fields in the rejects file.

    Raises:
        LookupError, TypeError, ValueError: the fields don't describe a rejected command.
    """
    number = 0
    if markers.several:
        words = [argument_of(each) for each in fields["arguments"]]
        slot = Rules().slot(pack(*words))
        if slot == UNKNOWN and len(words) > 1:
            slot = Rules().slot(pack("GET", words[1]))
        number = max(slot, 0) % len(markers.keys)
    return int(fields["row"]) < ran[number]
