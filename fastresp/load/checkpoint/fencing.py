"""Stop the previous loader's commands by scripts, if the user may not run CLIENT KILL.

Each transaction is a call of a script that first checks a marker, a key that stores how many rows
have run. The value of a marker starts with a random token, which the next loader replaces. Scripts
of the previous loader that are still in flight then find an unexpected token, and do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...transports.failures import TAKEN_OVER
from .links import Link, Links, response_error

__all__ = ["FENCE", "FENCE_BYTES", "LEVEL", "MERGED_ITEMS", "RUN", "may_fence"]

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
# previous loader stays the owner. Keys: the markers, then the description. Arguments: the common
# prefix of all loaders' markers (the generation), the new prefix with the token, and the fields of
# the description. A marker that is missing, or of a different generation, is left unchanged.
FENCE = b"""for number = 1, #KEYS - 1 do
  local key = KEYS[number]
  local value = redis.call('GET', key)
  if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
    redis.call('SET', key, ARGV[2] .. string.match(value, '[^:]*$'))
  end
end
redis.call('HSET', KEYS[#KEYS], unpack(ARGV, 3))
"""

# Sets the markers whose values start with a prefix; returns the number of all other markers.
# Arguments: the prefix, the new values.
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


def may_fence(links: Links, names: Iterable[str]) -> bool:
    """Return whether the load must use scripts, since the user may not run CLIENT KILL.

    False if the user may not run scripts, or if a command can't be used in a script. Always False
    in a cluster: a script can only declare the marker's key, so a node whose slot is being moved
    would run the script and refuse some of the commands in it.

    Args:
        links: our connections.
        names: names of the load's commands.

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
    """Return the reply to a command; None for an error reply."""
    try:
        return link.call(*words)
    except response_error():
        return None


def _runs_in_scripts(info: Any) -> bool:
    """Return whether scripts may run a command and all its subcommands."""
    if not isinstance(info, list) or len(info) < 3 or not isinstance(info[2], list):
        return False
    flags, subcommands = info[2], info[9] if len(info) > 9 else []
    if not isinstance(subcommands, list):
        return False
    return b"noscript" not in flags and all(map(_runs_in_scripts, subcommands))
