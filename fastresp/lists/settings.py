"""The settings of a list buffer: its keys in the server, and the Lua scripts of at-least-once."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from ..outcome.messages import Hint, Message, above_zero
from ..resp.slots import Rules
from ..resp.values import pack

__all__ = [
    "ACK", "BATCH_BYTES", "PUT_BACK", "TAKE", "Arguments", "Delivery", "Order", "Settings",
    "checked_count", "keys_of", "recover", "run",
]  # fmt: skip

# A command.
Arguments: TypeAlias = tuple[Any, ...]
Order: TypeAlias = Literal["fifo", "lifo"]
Delivery: TypeAlias = Literal["at-most-once", "at-least-once"]

# Maximum arguments of a command; some servers refuse more.
MAX_ARGUMENTS = 65_536
# A variadic command ends with the item with which it reaches this size. Larger commands would block
# other clients, and 1,000 items of a megabyte would have to fit into the server's query buffer.
BATCH_BYTES = 1 << 20
RULES = Rules()
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
# the lease has expired, whether the items were popped from the left, and a total: the number of
# items returned to the caller, or ''. With a number, the consumer keeps the returned items that are
# not acknowledged, and the script replies with the total of acknowledged items. With '', the
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


@dataclass(frozen=True)
class Settings:
    """The settings of a list buffer; see ListBuffer."""

    key: str | bytes
    batch: int = 1000
    order: Order = "fifo"
    delivery: Delivery = "at-most-once"
    maxlen: int | None = None
    lease: float = 30.0
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.key, (str, bytes)):
            raise TypeError(f"key must be a str or bytes, not {self.key!r}")
        # The command's name and key also count as arguments.
        if not isinstance(self.batch, int) or not 1 <= self.batch <= MAX_ARGUMENTS - 2:
            raise ValueError(f"batch must be a whole number from 1 to 65,534, not {self.batch!r}")
        for name, values in (("order", get_args(Order)), ("delivery", get_args(Delivery))):
            if getattr(self, name) not in values:
                choices = " or ".join(map(repr, values))
                raise ValueError(f"{name} must be {choices}, not {getattr(self, name)!r}")
        if self.maxlen is not None and not (isinstance(self.maxlen, int) and self.maxlen > 0):
            raise ValueError(f"maxlen must be a whole number above 0, or None, not {self.maxlen!r}")
        if not isinstance(self.lease, (int, float)) or not 0.1 <= self.lease < math.inf:
            message = f" must be a finite number of seconds, 0.1 or more, not {self.lease!r}"
            raise ValueError(Message(Hint("lease"), message))
        timeout = self.timeout
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(above_zero("timeout", "seconds", timeout))

    @property
    def name(self) -> bytes:
        return self.key.encode() if isinstance(self.key, str) else self.key

    @property
    def slot(self) -> int:
        return _slot_of(self.name)

    def check_records(self) -> None:
        """Check that the list and its records are in one slot, as a cluster requires."""
        if _slot_of(self.key_for("consumers")) != self.slot:
            raise ValueError(
                f"no hash tag can name the slot of the key {self.key!r}, so in a cluster its items "
                "can't be acknowledged or recovered; use a key without braces, or with a hash tag"
            )

    def key_for(self, suffix: str) -> bytes:
        """Return a key for records about the list, in the same cluster slot as the list.

        For list keys such as ``a}b``, the slot differs, since no hash tag can name the list's slot.
        """
        key = self.name
        # A key's hash tag is the text between its first '{' and the next '}'.
        start = key.find(b"{")
        tagged = start >= 0 and key.find(b"}", start + 1) > start + 1
        return (key + b":" if tagged else b"{" + key + b"}::") + suffix.encode()


def _slot_of(key: bytes) -> int:
    return RULES.slot(pack("LLEN", key))


def checked_count(n: object) -> int:
    """Return a number of items, at most ``sys.maxsize``; raise ValueError if it is invalid."""
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n must be a whole number of items, 0 or more, not {n!r}")
    return min(n, sys.maxsize)


def run(script: str, settings: Settings, name: str, first: object, *others: object) -> Arguments:
    """Return the command that runs a script for a consumer; ARGV[2] is the consumer's name."""
    # Send the whole script: it is small compared to the items, and EVAL avoids NOSCRIPT.
    return ("EVAL", script, 4, *keys_of(settings, name), first, name, *others)


def recover(settings: Settings, name: str) -> Arguments:
    """Return the command that puts back all items of a consumer with an expired lease."""
    return run(PUT_BACK, settings, name, "", 0, int(name.startswith("fifo")), "")


def keys_of(settings: Settings, name: str) -> list[bytes]:
    names = (f"processing:{name}", "consumers", f"lease:{name}")
    return [settings.name, *map(settings.key_for, names)]
