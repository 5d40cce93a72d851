-- Returns the rights that the user of this connection lacks for votes, and runs no command.
-- ARGV: a key of a lock, the counter, the record. They are not in KEYS, because Redis checks the rights to KEYS before it runs the script.
-- Returns `+name` for each command that is refused on every key, and `~*` if some key is refused.
local missing, refused = {}, false
local calls = {
  {'get'}, {'set', 'x'}, {'del'}, {'pexpire', '1'}, {'pttl'}, {'type'},
}
for _, call in ipairs(calls) do
  local allowed = 0
  for _, key in ipairs(ARGV) do
    local may = call[2] and redis.acl_check_cmd(call[1], key, call[2]) or not call[2] and redis.acl_check_cmd(call[1], key)
    allowed = allowed + (may and 1 or 0)
  end
  if allowed == 0 then
    missing[#missing + 1] = '+' .. call[1]
  end
  refused = refused or allowed < #ARGV and allowed > 0
end
if not redis.acl_check_cmd('time') then
  missing[#missing + 1] = '+time'
end
if refused or #missing >= #calls then
  missing[#missing + 1] = '~*'
end
return missing
