-- Sets the lock's key if it does not exist, and takes the next number of the token counter. The same as SET NX PX and INCR, for
-- users that may not INCR, and for masters where the record has to be looked at with the vote.
-- KEYS: lock, token counter. ARGV: value, ttl in ms.
-- Returns {1, number, seconds, microseconds}, or {0, kind, value or type, ttl, seconds, microseconds}: what is there
-- instead.
local time = redis.call('TIME')
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local kind, value, ttl = holder(KEYS[1])
  return {0, kind, value, ttl, time[1], time[2]}
end
local number = tonumber(redis.call('GET', KEYS[2]) or '0') + 1
redis.call('SET', KEYS[2], string.format('%.0f', number))
return {1, number, time[1], time[2]}
