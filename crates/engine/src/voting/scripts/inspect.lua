-- Reads the content of a key.
-- KEYS: lock. ARGV: none.
-- Returns {kind, value or type, ttl}.
return {holder(KEYS[1])}
