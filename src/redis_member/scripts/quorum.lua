-- Reads what other operators say of themselves on a member that they share, and says the same of the caller, at once: whoever
-- comes later sees the one who came before.
-- KEYS: record. ARGV: UID of the caller's quorum, 1 to write, name, member list, membership epoch, generation, and in ms: what
-- its fences wait for, what it may use, how long this counts.
-- Returns {1 if the caller's record stands, what it may use, 1 if its record stood before, others}; each of the others is {uid,
-- name, list, what its fences wait for, what it uses, ms until it counts no more}.
-- Nothing is written against another list, nor by one whose fences do not wait for what somebody uses.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local uid, list, fence, uses, used = ARGV[1], ARGV[4], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local stored = redis.call('GET', KEYS[1])
local records = {}
if stored then
  local readable, decoded = pcall(cjson.decode, stored)
  if not readable or type(decoded) ~= 'table' then
    return redis.error_reply('RECORD the record of operators cannot be read')
  end
  records = decoded
end
local alive, others, agrees = {}, {}, true
for id, record in pairs(records) do
  local left = record.at + record.lives - now
  if left > 0 then
    alive[id] = record
    if id ~= uid then
      table.insert(others, {id, record.name, record.list, record.fence, record.uses, left})
      agrees = agrees and record.list == list and record.uses <= fence
      uses = math.min(uses, record.fence)
    end
  end
end
-- What is promised is promised, whoever comes now.
uses = math.max(uses, used)
local own = alive[uid]
local same = own and own.list == list
local joined = same and own.joined == 1
local epoch, generation = tonumber(ARGV[5]), tonumber(ARGV[6])
if own and (own.epoch > epoch or (own.epoch == epoch and own.generation > generation)) then
  -- Another replica of the caller knows better. What it has said counts for the caller while it goes on saying so.
  local kept = same and agrees and now - own.at <= own.lives / 2
  return {kept and 1 or 0, math.min(uses, own.uses), joined and 1 or 0, others}
end
if ARGV[2] ~= '1' or not agrees then
  return {0, uses, joined and 1 or 0, others}
end
alive[uid] = {name = ARGV[3], list = list, epoch = epoch, generation = generation, fence = fence, uses = uses,
  lives = tonumber(ARGV[10]), at = now, joined = (joined or ARGV[11] == '1') and 1 or 0}
local longest = 0
for _, record in pairs(alive) do
  longest = math.max(longest, record.at + record.lives - now)
end
redis.call('SET', KEYS[1], cjson.encode(alive), 'PX', string.format('%.0f', longest))
return {1, uses, joined and 1 or 0, others}
