-- Extends the time to live of the key to at least ttl, if it holds the value. GT never shortens it, even if the caller has an old ttl.
-- KEYS: lock. ARGV: value, ttl in ms.
-- Returns {1, seconds, microseconds}, or the present content of the key as {0, kind, value or type, ttl, seconds, microseconds}.
local time = redis.call('TIME')
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  local kind, value, ttl = holder(KEYS[1])
  return {0, kind, value, ttl, time[1], time[2]}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return {1, time[1], time[2]}
