-- Deletes the key if it holds the value. Idempotent, and harmless at any time: a value is used for one attempt only.
-- KEYS: lock. ARGV: value (or sealed value).
-- Returns 1 if the key was deleted, else 0.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
