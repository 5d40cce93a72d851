-- Ends a hold without its holder. It replaces the value with the sealed value, so that no extension finds the value. It keeps the time
-- to live, and adds the lock delay once. Each call keeps the seal at least as long as the operator combines answers. Otherwise a
-- repair could set the key between two answers.
-- KEYS: lock. ARGV: value, sealed value, lock delay in ms, least time to live in ms.
-- Returns {1, ttl in ms}, or {0} if the key holds neither.
local held = redis.pcall('GET', KEYS[1])
if held == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
  local delay = tonumber(ARGV[3])
  if delay > 0 then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', redis.call('PTTL', KEYS[1]) + delay), 'GT')
  end
elseif held ~= ARGV[2] then
  return {0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[4], 'GT')
return {1, redis.call('PTTL', KEYS[1])}
