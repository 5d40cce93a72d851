-- As extend.lua, for a client without the rights for TIME and TYPE.
-- KEYS: lock. ARGV: value, ttl in ms.
-- Returns {1}, or {0} if the key does not hold the value.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return {0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return {1}
