"""What a list buffer was asked to be, and the scripts that keep its items safe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["ACK", "PUT_BACK", "TAKE", "Delivery", "Order", "Settings"]

Order: TypeAlias = Literal["fifo", "lifo"]
Delivery: TypeAlias = Literal["at-most-once", "at-least-once"]

# Some servers take no command of more arguments.
MOST_ARGUMENTS = 65_536

# Moves items to a consumer's own list. KEYS: the list, the consumer's list, the consumers, the
# consumer's lease. ARGV: most items, the consumer, the lease in ms, whether from the left.
TAKE = """\
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 0 then return redis.error_reply('LEASE is over') end
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
# Lets go of the first ARGV[1] items of a consumer's list.
ACK = """\
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 0 then return redis.error_reply('LEASE is over') end
redis.call('LTRIM', KEYS[2], ARGV[1], -1)
redis.call('SET', KEYS[4], 1, 'PX', ARGV[3])
return redis.call('LLEN', KEYS[2])"""
# Puts a consumer's list back where its items came from, if its lease is over, or it is ours.
PUT_BACK = """\
if ARGV[3] == '0' and redis.call('EXISTS', KEYS[4]) == 1 then return 0 end
local count = 0
while true do
  local items = redis.call('LRANGE', KEYS[2], -1000, -1)
  if #items == 0 then break end
  local back = {}
  for i = #items, 1, -1 do back[#back + 1] = items[i] end
  redis.call('LTRIM', KEYS[2], 0, -#items - 1)
  redis.call(ARGV[4] == '1' and 'LPUSH' or 'RPUSH', KEYS[1], unpack(back))
  count = count + #items
end
redis.call('SREM', KEYS[3], ARGV[2])
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
            raise ValueError(f"lease is a number of seconds of 0.1 or more, not {self.lease!r}")
        timeout = self.timeout
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(f"timeout is a number of seconds above 0, or None, not {timeout!r}")

    @property
    def name(self) -> bytes:
        """The key as bytes."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    def beside(self, what: str) -> bytes:
        """The key of what belongs to the list, in the same slot of a cluster."""
        key = self.name
        # The tag of a key is what stands between its first '{' and the first '}' behind it.
        start = key.find(b"{")
        tagged = start >= 0 and key.find(b"}", start + 1) > start + 1
        return (key + b":" if tagged else b"{" + key + b"}::") + what.encode()
