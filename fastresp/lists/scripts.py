"""The Lua scripts of at-least-once, and the keys of a consumer in the server."""

from __future__ import annotations

from .connection import Arguments
from .settings import Settings

__all__ = ["ACK", "PUT_BACK", "TAKE", "keys_of", "recover", "run"]

# KEYS of all scripts: the list, the consumer's own list, the hash of consumers, the consumer's
# lease. For each consumer, the hash has the total number of items that it has acknowledged. With
# a total, an acknowledgement can be retried even if the first attempt has reached the server.
#
# While a cluster slot is being moved, a script is refused if a key is missing, and aborted if it
# uses a key that it has emptied. So no script uses a key after emptying it.

# Read the total that a consumer has acknowledged. Refuse an invalid value: with a wrong total, the
# wrong items would be deleted.
ACKNOWLEDGED = """\
local function acknowledged_by(consumer, most)
  local found = redis.call('HGET', KEYS[3], consumer)
  if not found then return nil, redis.error_reply('LEASE is over') end
  if not string.find(found, '^%d+$') or tonumber(found) > tonumber(most) then
    return nil, redis.error_reply("ERR field " .. consumer .. " of " .. KEYS[3] .. " is '" ..
      string.sub(found, 1, 40) .. "', which is not how many items it has acknowledged: call " ..
      "close(), which puts its items back, and pop them again")
  end
  return found
end
"""
# Move items to a consumer's own list. ARGV: maximum items, the consumer, the lease in ms, whether
# to pop from the left.
TAKE = """\
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then return redis.error_reply('LEASE is over') end
local n, items = tonumber(ARGV[1]), nil
if ARGV[4] == '1' then
  items = redis.call('LRANGE', KEYS[1], 0, n - 1)
  redis.call('LTRIM', KEYS[1], n, -1)
else
  local last = redis.call('LRANGE', KEYS[1], -n, -1)
  redis.call('LTRIM', KEYS[1], 0, -n - 1)
  items = {}
  for i = #last, 1, -1 do items[#items + 1] = last[i] end
end
for i = 1, #items, 5000 do
  redis.call('RPUSH', KEYS[2], unpack(items, i, math.min(i + 4999, #items)))
end
redis.call('SET', KEYS[4], 1, 'PX', ARGV[3])
return items"""
# Delete the first items of a consumer's own list. ARGV: the new total of acknowledged items, which
# includes the items to delete; the consumer; the lease in ms.
ACK = f"""\
{ACKNOWLEDGED}local before, refusal = acknowledged_by(ARGV[2], ARGV[1])
if refusal then return refusal end
local done = math.max(0, ARGV[1] - before)
local left = math.max(0, redis.call('LLEN', KEYS[2]) - done)
redis.call('LTRIM', KEYS[2], done, -1)
redis.call('HSET', KEYS[3], ARGV[2], ARGV[1])
redis.call('SET', KEYS[4], 1, 'PX', ARGV[3])
return left"""
# Put a consumer's items back where they were popped. ARGV: '', the consumer, '0' to do so only if
# the lease has expired, whether the items were popped from the left, and the total number of items
# returned to the caller, or ''. With a total, the consumer keeps the returned items that are not
# acknowledged, and the script replies with the total of acknowledged items. With '', the consumer
# keeps no items and is deleted, and the script replies with the number of items put back.
PUT_BACK = f"""\
{ACKNOWLEDGED}if ARGV[3] == '0' and redis.call('EXISTS', KEYS[4]) == 1 then return 0 end
local keep, acknowledged = 0, nil
if ARGV[5] ~= '' then
  local refusal
  acknowledged, refusal = acknowledged_by(ARGV[2], ARGV[5])
  if refusal then return refusal end
  keep = ARGV[5] - acknowledged
end
local count, size = 0, redis.call('LLEN', KEYS[2])
while size > keep do
  local items = redis.call('LRANGE', KEYS[2], math.max(keep, size - 1000), -1)
  local back = {{}}
  for i = #items, 1, -1 do back[#back + 1] = items[i] end
  redis.call('LTRIM', KEYS[2], 0, -#items - 1)
  redis.call(ARGV[4] == '1' and 'LPUSH' or 'RPUSH', KEYS[1], unpack(back))
  count, size = count + #items, size - #items
end
if acknowledged then return tonumber(acknowledged) end
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('DEL', KEYS[4])
return count"""


def run(script: str, settings: Settings, name: str, first: object, *others: object) -> Arguments:
    """Return the command that runs a script for a consumer, whose name is the second of ARGV."""
    # The whole script each time: it is small compared to the items, and avoids NOSCRIPT.
    return ("EVAL", script, 4, *keys_of(settings, name), first, name, *others)


def recover(settings: Settings, name: str) -> Arguments:
    """Return the command that puts back all items of a consumer with an expired lease."""
    return run(PUT_BACK, settings, name, "", 0, int(name.startswith("fifo")), "")


def keys_of(settings: Settings, name: str) -> list[bytes]:
    """Return the KEYS of the scripts."""
    names = (f"processing:{name}", "consumers", f"lease:{name}")
    return [settings.name, *map(settings.key_for, names)]
