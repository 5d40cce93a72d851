-- Sets the key again for a holder whose key this member has lost. NX never replaces the key of another holder. The key expires at
-- until. A request that arrives later than not-after, by this member's clock, sets nothing.
-- KEYS: lock. ARGV: value, longest ttl in ms, until and not-after in microseconds of this member's TIME.
-- Returns 1 if the key was set, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl = math.min(tonumber(ARGV[2]), math.floor((tonumber(ARGV[3]) - now) / 1000))
if ttl > 0 and now <= tonumber(ARGV[4]) and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', string.format('%.0f', ttl)) then
  return 1
end
return 0
