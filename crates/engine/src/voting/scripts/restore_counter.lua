-- Raises the counter of a member that has lost it to a number that no granted token exceeds.
-- KEYS: token counter. ARGV: token.
-- Returns the counter, raised to the token if it was lower.
local counter = tonumber(redis.call('GET', KEYS[1]) or '0')
if counter >= tonumber(ARGV[1]) then
  return counter
end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(ARGV[1])
