"""The scripts that keep items in the server until they are acknowledged."""

__all__ = ["ACK", "PUT_BACK", "TAKE"]

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
