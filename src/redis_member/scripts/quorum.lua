-- Reads what other operators say of themselves on a member that they share, and says the same of the caller, at once: whoever
-- comes later sees the one who came before.
-- KEYS: record. ARGV: UID of the caller's quorum, 1 to write, name, member lists (the newest first, separated by '|'), membership
-- epoch, how far its change is, generation, and in ms: what its fences wait for, what it may use, what it uses already, how long this
-- counts; 1 if it has stood on every member, 1 to give up all lists but the newest.
-- Returns {1 if the caller's record stands, what it may use, 1 if its record stood before, others, and of its record the epoch, 1 if
-- it names the newest list alone, the lists, and since when the record has told of the caller's quorum (0: unknown)}; each of the others is {uid, name, lists, what its fences wait for, what it uses, ms
-- until it counts no more, 1 if it names the newest list alone}.
-- Two agree when they share a list. Nothing is written by one who shares none with somebody, nor by one whose fences do not wait
-- for what somebody uses; and lists are given up only while everybody else shares the one that is left.
-- An epoch is remembered for a week longer than the rest: votes are judged by it (guard.lua).
local remembered = 604800000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local uid, list, fence, uses, used = ARGV[1], ARGV[4], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local epoch, phase, generation = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local function share(ours, ours_newest, theirs, theirs_newest)
  for one in string.gmatch(ours, '[^|]+') do
    for other in string.gmatch(theirs, '[^|]+') do
      if one == other then
        return true
      end
      if theirs_newest then
        break
      end
    end
    if ours_newest then
      break
    end
  end
  return false
end
local stored = redis.call('GET', KEYS[1])
local records = {}
if stored then
  local readable, decoded = pcall(cjson.decode, stored)
  if not readable or type(decoded) ~= 'table' then
    return redis.error_reply('RECORD the record of operators cannot be read')
  end
  records = decoded
end
-- Kept through every change, so that a record which was lost shows: somebody has emptied the process.
local since = records[uid] and records[uid].since or 0
local kept, own, others, agrees, may_give_up = {}, nil, {}, true, true
for id, record in pairs(records) do
  local left = record.at + record.lives - now
  if left > 0 then
    kept[id] = record
    if id == uid then
      own = record
    else
      local newest = record.newest == 1
      table.insert(others, {id, record.name, record.list, record.fence, record.uses, left, newest and 1 or 0})
      agrees = agrees and share(list, false, record.list, newest) and record.uses <= fence
      may_give_up = may_give_up and share(list, true, record.list, newest)
      uses = math.min(uses, record.fence)
    end
  elseif record.at + remembered > now then
    kept[id] = {epoch = record.epoch, at = record.at, lives = 0, since = record.since}
  end
end
-- What is promised is promised, whoever comes now.
uses = math.max(uses, used)
local known = kept[uid] and kept[uid].epoch or 0
if known > epoch then
  -- The caller has not heard of a change of its own members: it votes no more, and says nothing.
  return {0, uses, 0, others, known, 0, '', since}
end
local same = own and share(list, false, own.list, false)
local joined = same and own.joined == 1
local function answer(stands)
  return {stands and 1 or 0, uses, joined and 1 or 0, others, known, own and own.newest or 0, own and own.list or '', since}
end
if own and known == epoch and (own.phase > phase or (own.phase == phase and own.generation > generation)) then
  -- Another replica of the caller knows better. What it has said counts for the caller while it goes on saying so.
  uses = math.min(uses, own.uses)
  return answer(same and agrees and now - own.at <= own.lives / 2)
end
if ARGV[2] ~= '1' or not agrees then
  return answer(false)
end
if not records[uid] then
  since = now
end
own = {name = ARGV[3], since = since, list = list, epoch = epoch, phase = phase, generation = generation, fence = fence, uses = uses,
  lives = tonumber(ARGV[11]), at = now, joined = (joined or ARGV[12] == '1') and 1 or 0,
  newest = (ARGV[13] == '1' and may_give_up) and 1 or 0}
kept[uid], known = own, epoch
local longest = 0
for _, record in pairs(kept) do
  longest = math.max(longest, record.at + math.max(record.lives, remembered) - now)
end
redis.call('SET', KEYS[1], cjson.encode(kept), 'PX', string.format('%.0f', longest))
return answer(true)
