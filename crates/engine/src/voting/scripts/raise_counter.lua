-- Writes a token back: counter = max(counter, token). It counts only where the lock's key still holds the caller's
-- value: a member that meanwhile voted for another holder has given that one a token which may be smaller.
-- KEYS: lock, token counter. ARGV: value, token.
-- Returns 1 if the key holds the value, else 0 and nothing is changed.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2])
end
return 1
