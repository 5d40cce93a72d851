-- One page of a walk over all keys, with how long they live.
-- ARGV: cursor, and how many keys a page has, about.
-- Returns {cursor, {name, ttl in ms (-1: none), name, ttl, ...}}, of each name its first 200 bytes: a client may have given a key a
-- name of a megabyte. For the same reason a page ends early when its names are long, and what it has read is freed at once.
local cursor, found, bytes, steps = ARGV[1], {}, 0, 0
repeat
  local step = redis.call('SCAN', cursor, 'COUNT', 10)
  cursor = step[1]
  for _, key in ipairs(step[2]) do
    bytes = bytes + #key
    found[#found + 1] = string.sub(key, 1, 200)
    found[#found + 1] = redis.call('PTTL', key)
  end
  steps = steps + 1
until cursor == '0' or #found >= 2 * ARGV[2] or steps >= ARGV[2] + 0 or bytes > 1000000
if bytes > 1000000 then
  collectgarbage()
end
return {cursor, found}
