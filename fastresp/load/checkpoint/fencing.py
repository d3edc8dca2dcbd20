"""Fence off the loader before by scripts, for users who may not close its connections.

Each transaction is a call of a script that compares the marker first. A marker begins with a random
text, which the next loader replaces: so whatever the loader before has sent, and is still under
way, finds another value and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...transports.causes import TAKEN_OVER
from .links import Link, Links, response_error

__all__ = ["FENCE", "FENCE_BYTES", "LEVEL", "MERGED_ITEMS", "RUN", "may_fence"]

# Of the random text, which has two characters for each.
FENCE_BYTES = 8
# A merged command has at most three times as many arguments, and a few more, and so less than
# SCRIPTED_WORDS of resp/batches.pyx.
MERGED_ITEMS = 2_000
# No connection has this CLIENT ID. Not 0: Redis 6.2 closes all others then.
NOBODY = (1 << 63) - 1

# Runs commands if the marker has the value that it must have before them; see Batcher for the
# arguments. Its reply is an array up to the last error; empty if there is none. A reply of several
# elements, such as that of BF.MADD, is in it if one of them is an error.
#
# The marker is set first: a server that refuses writes (OOM, READONLY, MISCONF ...) refuses this
# one, and nothing has run. After a write it refuses no others of the script, and SCRIPT KILL does
# nothing. Source: luaRedisGenericCommand() in scripting.c of Redis 6.2, script.c of Redis 7.
# Redis 6.2 puts the place in the script before errors of its own.
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

# Puts another text before the rows of each marker, then changes the description: if it can't do the
# first, the loader before stays the owner. The last key is that of the description. Arguments: what
# markers of this load begin with, whoever has set them; the new text; and the fields of the
# description. A marker that is missing, or begins with something else, stays as it is.
FENCE = b"""for number = 1, #KEYS - 1 do
  local key = KEYS[number]
  local value = redis.call('GET', key)
  if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
    redis.call('SET', key, ARGV[2] .. string.match(value, '[^:]*$'))
  end
end
redis.call('HSET', KEYS[#KEYS], unpack(ARGV, 3))
"""

# Sets the markers that begin with a text; returns how many do not. Arguments: the text, the values.
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

# Does what a batch needs, and changes nothing: other servers may not know a function, or may want
# each key to be declared.
PROBE = "redis.replicate_commands() return redis.call('EXISTS', ARGV[1])"


def may_fence(links: Links, names: Iterable[str]) -> bool:
    """Return whether a load is to be fenced by scripts: it may run them, but not CLIENT KILL.

    Not in a cluster. Only the marker's key could be declared, so while a slot is moved, a node
    would run a script, and refuse some of its commands.

    Args:
        links: our connections.
        names: of its commands.

    Raises:
        TransportError: the server can't be reached.
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
    """Return the reply to a command; None if the server refuses it."""
    try:
        return link.call(*words)
    except response_error():
        return None


def _runs_in_scripts(info: Any) -> bool:
    """Return whether a script may run a command, and all its subcommands."""
    if not isinstance(info, list) or len(info) < 3 or not isinstance(info[2], list):
        return False
    flags, subcommands = info[2], info[9] if len(info) > 9 else []
    if not isinstance(subcommands, list):
        return False
    return b"noscript" not in flags and all(map(_runs_in_scripts, subcommands))
