-- Sets the lock's key if it does not exist, and takes the next token.
-- KEYS: lock, token counter. ARGV: value, ttl in ms, hint.
-- Returns {1, token, seconds, microseconds}, or {0, kind, value or type, ttl, seconds, microseconds}: what is there
-- instead.
-- Fails with HINT, and sets nothing, when the hint is above the counter by more than 2^32: a hint that far off is a
-- mistake, and the numbers would be lost for ever.
local time = redis.call('TIME')
local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
local hint = tonumber(ARGV[3])
if hint > counter + 4294967296 then
  return redis.error_reply('HINT the hint is too far above the counter')
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local kind, value, ttl = holder(KEYS[1])
  return {0, kind, value, ttl, time[1], time[2]}
end
local token = math.max(counter, hint) + 1
redis.call('SET', KEYS[2], string.format('%.0f', token))
return {1, token, time[1], time[2]}
