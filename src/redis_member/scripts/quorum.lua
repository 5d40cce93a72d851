-- Reads what other operators say of themselves on a member that they share, and says the same of the caller, at once: an
-- operator that comes later sees the one that came before.
-- KEYS: record. ARGV: JSON {uid of the caller's quorum, write, name, list: its member lists (the newest first, separated by '|'), newest:
-- all lists but the newest are given up, epoch of its members, phase: how far its change is, generation, and in ms fence: what its fences
-- wait for, uses: what it may use, used: what it uses already, lives: how long this counts; joined: it has stood on every member}.
-- Returns JSON {kept: the caller's record stands, uses: what it may use, stood: its record stood before, others by uid {name, list, newest,
-- fence, uses, left: ms until it counts no more}, and of its record epoch, newest, list, and since when it has told of the caller's quorum
-- (0: unknown)}.
-- Two agree when they share a list. Nothing is written by an operator that shares none with another one, nor by one whose fences do not
-- wait for what another one uses; and lists are given up only while all others share the one that is left.
-- An epoch is remembered for a week longer than the rest: votes are judged by it (guard.lua).
local remembered = 604800000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ask = cjson.decode(ARGV[1])
local uid, list, epoch, uses = ask.uid, ask.list, ask.epoch, ask.uses
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
-- Kept through every change, so that a record which was lost shows: the process was emptied.
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
      others[id] = {name = record.name, list = record.list, newest = newest, fence = record.fence, uses = record.uses, left = left}
      agrees = agrees and share(list, false, record.list, newest) and record.uses <= ask.fence
      may_give_up = may_give_up and share(list, true, record.list, newest)
      uses = math.min(uses, record.fence)
    end
  elseif record.at + remembered > now then
    kept[id] = {epoch = record.epoch, at = record.at, lives = 0, since = record.since}
  end
end
-- What is promised is promised, whichever operator comes now.
uses = math.max(uses, ask.used)
local known = kept[uid] and kept[uid].epoch or 0
local function answer(stands, stood, of)
  return cjson.encode({kept = stands, uses = uses, stood = stood, others = others, epoch = known, newest = of.newest == 1,
    list = of.list or '', since = since})
end
if known > epoch then
  -- The caller has not heard of a change of its own members: it votes no more, and says nothing.
  return answer(false, false, {})
end
local same = own ~= nil and share(list, false, own.list, false)
local joined = same and own.joined == 1
if own and known == epoch and (own.phase > ask.phase or (own.phase == ask.phase and own.generation > ask.generation)) then
  -- Another replica of the caller knows better. What it has said counts for the caller while it goes on saying so.
  uses = math.min(uses, own.uses)
  return answer(same and agrees and now - own.at <= own.lives / 2, joined, own)
end
if not ask.write or not agrees then
  return answer(false, joined, own or {})
end
if not records[uid] then
  since = now
end
own = {name = ask.name, since = since, list = list, epoch = epoch, phase = ask.phase, generation = ask.generation, fence = ask.fence,
  uses = uses, lives = ask.lives, at = now, joined = (joined or ask.joined) and 1 or 0, newest = (ask.newest and may_give_up) and 1 or 0}
kept[uid], known = own, epoch
local longest = 0
for _, record in pairs(kept) do
  longest = math.max(longest, record.at + math.max(record.lives, remembered) - now)
end
redis.call('SET', KEYS[1], cjson.encode(kept), 'PX', string.format('%.0f', longest))
return answer(true, joined, own)
