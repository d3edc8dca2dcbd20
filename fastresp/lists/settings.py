"""What a list buffer was asked to be, and the scripts that keep its items safe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..outcome.messages import Hint, Message, above_zero

__all__ = ["ACK", "PUT_BACK", "TAKE", "Delivery", "Order", "Settings"]

Order: TypeAlias = Literal["fifo", "lifo"]
Delivery: TypeAlias = Literal["at-most-once", "at-least-once"]

# Some servers take no command of more arguments.
MOST_ARGUMENTS = 65_536

# KEYS of all: the list, the consumer's list, the consumers, the consumer's lease. The consumers are
# a hash, with the number of items that each has acknowledged in all: so an acknowledgement can be
# sent again after a connection was lost, and nobody guesses whether the first one arrived.

# Moves items to a consumer's own list. ARGV: most items, the consumer, the lease in ms, whether
# from the left.
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
# Lets go of the first items of a consumer's list. ARGV: how many it has acknowledged then in all,
# the consumer, the lease in ms.
ACK = """\
local before = redis.call('HGET', KEYS[3], ARGV[2])
if not before then return redis.error_reply('LEASE is over') end
redis.call('LTRIM', KEYS[2], math.max(0, ARGV[1] - before), -1)
redis.call('HSET', KEYS[3], ARGV[2], ARGV[1])
redis.call('SET', KEYS[4], 1, 'PX', ARGV[3])
return redis.call('LLEN', KEYS[2])"""
# Puts a consumer's list back where its items came from. ARGV: '', the consumer, '0' to do it only
# if its lease is over, whether they came from the left, and how many items its user was given in
# all: those stay that are not acknowledged, and how many are is returned. With '' for that nothing
# stays, the consumer is struck off, and the number of items is returned.
PUT_BACK = """\
if ARGV[3] == '0' and redis.call('EXISTS', KEYS[4]) == 1 then return 0 end
local keep, acknowledged = 0, nil
if ARGV[5] ~= '' then
  acknowledged = redis.call('HGET', KEYS[3], ARGV[2])
  if not acknowledged then return redis.error_reply('LEASE is over') end
  keep = ARGV[5] - acknowledged
end
local count, size = 0, redis.call('LLEN', KEYS[2])
while size > keep do
  local items = redis.call('LRANGE', KEYS[2], math.max(keep, size - 1000), -1)
  local back = {}
  for i = #items, 1, -1 do back[#back + 1] = items[i] end
  redis.call('LTRIM', KEYS[2], 0, -#items - 1)
  redis.call(ARGV[4] == '1' and 'LPUSH' or 'RPUSH', KEYS[1], unpack(back))
  count, size = count + #items, size - #items
end
if acknowledged then return tonumber(acknowledged) end
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('DEL', KEYS[4])
return count"""


@dataclass(frozen=True)
class Settings:
    """What a buffer was asked to be; see ListBuffer."""

    key: str | bytes
    batch: int = 1000
    order: Order = "fifo"
    delivery: Delivery = "at-most-once"
    maxlen: int | None = None
    lease: float = 30.0
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.key, (str, bytes)):
            raise TypeError(f"key is a str or bytes, not {self.key!r}")
        # Besides the items there are the name of the command and the key.
        if not isinstance(self.batch, int) or not 1 <= self.batch <= MOST_ARGUMENTS - 2:
            raise ValueError(f"batch is a number from 1 to 65,534, not {self.batch!r}")
        if self.order not in ("fifo", "lifo"):
            raise ValueError(f"order is 'fifo' or 'lifo', not {self.order!r}")
        if self.delivery not in ("at-most-once", "at-least-once"):
            raise ValueError(
                f"delivery is 'at-most-once' or 'at-least-once', not {self.delivery!r}"
            )
        if self.maxlen is not None and not (isinstance(self.maxlen, int) and self.maxlen > 0):
            raise ValueError(f"maxlen is a number above 0, or None, not {self.maxlen!r}")
        if not isinstance(self.lease, (int, float)) or not 0.1 <= self.lease < math.inf:
            words = f" is a number of seconds of 0.1 or more, not {self.lease!r}"
            raise ValueError(Message(Hint("lease"), words))
        timeout = self.timeout
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(above_zero("timeout", "seconds", timeout))

    @property
    def name(self) -> bytes:
        """The key as bytes."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    def beside(self, what: str) -> bytes:
        """The key of what belongs to the list, in the same slot of a cluster.

        But for keys such as ``a}b``, for which there is no tag.
        """
        key = self.name
        # The tag of a key is what stands between its first '{' and the first '}' behind it.
        start = key.find(b"{")
        tagged = start >= 0 and key.find(b"}", start + 1) > start + 1
        return (key + b":" if tagged else b"{" + key + b"}::") + what.encode()
