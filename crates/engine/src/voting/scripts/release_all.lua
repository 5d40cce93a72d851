-- Releases several locks at once: deletes each key that holds its value. Idempotent, and harmless at any time.
-- KEYS: locks. ARGV: for each its value (or sealed value).
-- Returns for each 1 if the key was deleted, else 0.
local deleted = {}
for index, key in ipairs(KEYS) do
  if redis.pcall('GET', key) == ARGV[index] then
    deleted[index] = redis.call('DEL', key)
  else
    deleted[index] = 0
  end
end
return deleted
