-- Ends a hold without its holder: the sealed value takes the place of the value, so that no extension finds it any
-- more. The time to live is kept, plus the lock delay once. Each call lets the seal live for as long as answers are counted
-- together: otherwise a repair could set the key again between two of them.
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
