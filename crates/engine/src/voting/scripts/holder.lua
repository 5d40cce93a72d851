-- Precedes scripts that return the content of a key.
-- Returns a flat list of three: a kind ('missing', 'string' or 'other'), the value (at most its first 128 bytes) or the
-- name of the type, and the time to live in milliseconds (-1: none).
local function holder(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    return 'missing', '', -2
  end
  local ttl = redis.call('PTTL', key)
  if kind == 'string' then
    return 'string', string.sub(redis.call('GET', key), 1, 128), ttl
  end
  return 'other', kind, ttl
end
