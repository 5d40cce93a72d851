-- Makes the key live for at least ttl from now, if it holds the value, as a client that may ask neither TIME nor TYPE.
-- KEYS: lock. ARGV: value, ttl in ms.
-- Returns {1}, or {0} if the key does not hold the value.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return {0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return {1}
