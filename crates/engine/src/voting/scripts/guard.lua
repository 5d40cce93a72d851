-- Precedes the scripts that vote on an external master. The operator cannot close the users of an earlier membership epoch there, so the
-- script compares the epoch with the record (docs/dev/rules.md, rule 8).
-- The last of KEYS: the record. The last two of ARGV: UID of the caller's quorum, and its membership epoch.
-- Fails with EPOCH, and does nothing, if the record has a later epoch of that quorum.
local said = redis.call('GET', KEYS[#KEYS])
if said then
  local readable, records = pcall(cjson.decode, said)
  if not readable or type(records) ~= 'table' then
    return redis.error_reply('RECORD the record of operators cannot be read')
  end
  local own = records[ARGV[#ARGV - 1]]
  if own and own.epoch > tonumber(ARGV[#ARGV]) then
    return redis.error_reply('EPOCH the members have changed')
  end
end
