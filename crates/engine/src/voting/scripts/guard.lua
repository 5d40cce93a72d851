-- Precedes the scripts that vote on an external master. The operator cannot close the users of an earlier membership epoch there, so the
-- script compares the epoch with the record (docs/dev/rules.md, rule 8).
-- The last of KEYS: the record. The last three of ARGV: UID of the caller's quorum, its membership epoch, and `since` of its record when the
-- operator admitted the process. An empty `since` is not compared.
-- Fails with EPOCH, and does nothing, if the record has a later epoch of that quorum, or was lost with the other data of the process.
local stored = redis.call('GET', KEYS[#KEYS])
local own
if stored then
  local readable, records = pcall(cjson.decode, stored)
  if not readable or type(records) ~= 'table' then
    return redis.error_reply('RECORD the record of operators cannot be read')
  end
  own = records[ARGV[#ARGV - 2]]
end
if own and own.epoch > tonumber(ARGV[#ARGV - 1]) then
  return redis.error_reply('EPOCH the members have changed')
end
if ARGV[#ARGV] ~= '' and (not own or own.since ~= tonumber(ARGV[#ARGV])) then
  return redis.error_reply('EPOCH the process has lost its data')
end
