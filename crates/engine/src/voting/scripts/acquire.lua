-- Sets the lock's key if it does not exist, and takes the next number of the token counter, as SET NX PX and INCR do. A request that
-- arrives after the last moment of the attempt, by this member's clock, changes nothing.
-- KEYS: lock, token counter. ARGV: value, ttl in ms, not-after in microseconds of this member's TIME.
-- Returns {1, number, seconds, microseconds}, or the present content of the key as {0, kind, value or type, ttl, seconds, microseconds}.
-- Fails with LATE after the last moment.
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then
  return redis.error_reply('LATE the last moment of this attempt has passed')
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local kind, value, ttl = holder(KEYS[1])
  return {0, kind, value, ttl, time[1], time[2]}
end
local number = tonumber(redis.call('GET', KEYS[2]) or '0') + 1
redis.call('SET', KEYS[2], string.format('%.0f', number))
return {1, number, time[1], time[2]}
