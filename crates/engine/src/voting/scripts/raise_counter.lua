-- Writes a token back: counter = max(counter, token). Only a member whose key still holds the caller's value does so. Another member
-- can have voted for the next holder since, with a smaller token.
-- KEYS: lock, token counter. ARGV: value, token.
-- Returns 1 if the key holds the value. Otherwise it returns 0 and changes nothing.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2])
end
return 1
