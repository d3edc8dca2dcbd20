"""A consumer of a list, with at-least-once: its Lua scripts, its keys in the server, its counts."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence

from .connection import Arguments
from .popped_items import PoppedItems
from .settings import Settings

__all__ = ["ACK", "Consumer", "recover"]

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
# the lease has expired, whether the items were popped from the left, and the number of items that
# the consumer has returned to its caller. The consumer keeps unacknowledged items that were
# returned, and the script replies with the total of acknowledged items. If the number is '', the
# consumer keeps no items and is deleted, and the script replies with the number of items put back.
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


class Consumer:
    """The consumer that this buffer registers in the server, with at-least-once.

    The server stores the total number of items that the consumer has acknowledged, and each
    acknowledgement sends the new total. So a call can be retried after a lost connection.

    Attributes:
        name: the consumer's name in the server; empty until it has joined.
        acknowledged: number of items acknowledged by calls that returned, under this name and
            earlier names.
    """

    def __init__(self, settings: Settings, popped: PoppedItems) -> None:
        self.settings = settings
        self.popped = popped
        self.name = ""
        self.acknowledged = 0
        self._returned = 0  # number of items in ``acknowledged`` under this name
        self._arrived = 0  # the server's total under this name

    @property
    def from_left(self) -> int:
        """1 if items are popped from the left end, else 0; an argument of scripts."""
        return int(self.settings.order == "fifo")

    @property
    def lease_ms(self) -> int:
        return math.ceil(1000 * self.settings.lease)

    def new_name(self) -> str:
        """Return a unique name. The prefix shows ``recover()`` at which end to put items back."""
        return f"{self.settings.order}-{uuid.uuid4().hex}"

    def joining(self, name: str) -> Sequence[Arguments]:
        """Return the commands that register the consumer in the server."""
        keys = _keys(self.settings, name)
        return (
            ("MULTI",),
            ("HSET", keys[2], name, 0),
            ("SET", keys[3], 1, "PX", self.lease_ms),
            ("EXEC",),
        )

    def joined(self, name: str) -> None:
        self.name = name
        self._returned = self._arrived = 0

    def leave(self) -> int:
        """Forget the name; return the number of items that the caller had not acknowledged."""
        given, self.popped.delivered, self.name = self.popped.delivered, 0, ""
        return given

    def take(self, n: int) -> Arguments:
        """Return the command that moves n items to this consumer's list, and replies with them."""
        return self._script(TAKE, n, self.name, self.lease_ms, self.from_left)

    def acknowledge(self, count: int) -> Arguments:
        """Return the command that acknowledges the caller's first ``count`` unacknowledged items.

        Items whose earlier acknowledgement is in doubt are also acknowledged.
        """
        return self._script(ACK, self._after(count), self.name, self.lease_ms)

    def acknowledging_returned(self, count: int) -> None:
        self._arrived = self._after(count)
        self._returned += count
        self.acknowledged += count
        self.popped.delivered -= count

    def _after(self, count: int) -> int:
        return max(self._arrived, self._returned + count)

    def rejoin(self) -> Arguments:
        """Return the command that puts back all items that the caller has not received.

        The reply is the total number of acknowledged items.
        """
        given = self._returned + self.popped.delivered
        return self._script(PUT_BACK, "", self.name, 1, self.from_left, given)

    def can_have(self, arrived: int) -> bool:
        """Return whether this total of acknowledged items, from the server, is possible."""
        return 0 <= arrived <= self._returned + self.popped.delivered

    def rejoined(self, arrived: int) -> None:
        self._arrived = arrived

    def put_back(self) -> Arguments:
        """Return the command that puts back all items of the consumer and deletes it."""
        return self._script(PUT_BACK, "", self.name, 1, self.from_left, "")

    def clear(self) -> Sequence[Arguments]:
        """Return the commands that remove all items, and acknowledge the items that the caller has.

        The acknowledgement keeps the totals correct even if the reply is lost. Otherwise, later
        items could be deleted by mistake.
        """
        both = _keys(self.settings, self.name)[:2]
        # In this order, as the scripts expect.
        return ("MULTI",), self.acknowledge(self.popped.delivered), ("DEL", *both), ("EXEC",)

    def cleared(self) -> None:
        self._arrived = self._returned = self._after(self.popped.delivered)
        self.popped.delivered = 0

    def _script(self, script: str, *arguments: object) -> Arguments:
        return _script(script, _keys(self.settings, self.name), *arguments)


def recover(settings: Settings, name: str) -> Arguments:
    """Return the command that puts back all items of a consumer with an expired lease."""
    from_left = int(name.startswith("fifo"))
    return _script(PUT_BACK, _keys(settings, name), "", name, 0, from_left, "")


def _keys(settings: Settings, name: str) -> list[bytes]:
    """Return the KEYS of the scripts."""
    names = (f"processing:{name}", "consumers", f"lease:{name}")
    return [settings.name, *map(settings.key_for, names)]


def _script(script: str, keys: list[bytes], *arguments: object) -> Arguments:
    # The whole script each time: it is small compared to the items, and avoids NOSCRIPT.
    return ("EVAL", script, 4, *keys, *arguments)
