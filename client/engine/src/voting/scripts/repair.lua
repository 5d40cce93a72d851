-- Sets the key again for a holder whose key this member has lost. NX: another holder's key is never replaced. The key
-- ends at not-after by this member's clock, however late the request arrives.
-- KEYS: lock. ARGV: value, longest ttl in ms, not-after in microseconds of this member's TIME.
-- Returns 1 if the key was set, else 0.
local time = redis.call('TIME')
local left = math.floor((tonumber(ARGV[3]) - (time[1] * 1000000 + time[2])) / 1000)
local ttl = math.min(tonumber(ARGV[2]), left)
if ttl > 0 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', string.format('%.0f', ttl)) then
  return 1
end
return 0
