-- Reads the claims of other operators on a member that they share, and makes or renews the caller's claim in the same step: an operator
-- that comes later reads the claim of the one that came before.
-- KEYS: record. ARGV: JSON {uid of the caller's quorum, write: the claim may be made, name, list: its members, ttl: the longest time to
-- live in ms that it gives and that its fences wait for, epoch, ended: what was promised under earlier epochs has expired, generation,
-- lives: how long the claim counts in ms, joined: it has stood on every member}.
-- Returns JSON {kept: the caller's claim stands, stood: one with this list had joined before, others by uid {name, list, ttl, left: ms
-- until it expires}, epoch that the record knows of the caller's quorum, since: when the record first named that quorum}.
-- No claim is made beside one with another list or another ttl. The epoch is written in any case, and is remembered for a week: votes are
-- judged by it (guard.lua).
local remembered = 604800000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ask = cjson.decode(ARGV[1])
local uid, epoch = ask.uid, ask.epoch
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
local since = records[uid] and records[uid].since or now
local known = records[uid] and records[uid].epoch or 0
local kept, own, others, agrees = {}, nil, {}, true
for id, record in pairs(records) do
  local left = record.at + record.lives - now
  if left > 0 and id == uid then
    own = record
  elseif left > 0 then
    kept[id] = record
    others[id] = {name = record.name, list = record.list, ttl = record.ttl, left = left}
    agrees = agrees and record.list == ask.list and record.ttl == ask.ttl
  elseif record.at + remembered > now then
    kept[id] = {epoch = record.epoch, at = record.at, lives = 0, since = record.since}
  end
end
local function answer(stands, stood)
  return cjson.encode({kept = stands, stood = stood, others = others, epoch = known, since = since})
end
if known > epoch then
  -- The caller does not know of a change of its own members. It makes no claim.
  return answer(false, false)
end
local joined = own ~= nil and own.list == ask.list and own.joined == 1
if own and known == epoch and own.generation > ask.generation then
  -- Another replica of the caller knows better. Its claim counts for the caller while it renews it.
  return answer(agrees and own.list == ask.list and own.ttl == ask.ttl and now - own.at <= own.lives / 2, joined)
end
local stands = ask.write and agrees
if not stands and known == epoch then
  return answer(false, joined)
end
if stands then
  own = {name = ask.name, list = ask.list, ttl = ask.ttl, generation = ask.generation, lives = ask.lives, at = now,
    joined = (joined or ask.joined) and 1 or 0}
elseif not own or ask.ended then
  own = {lives = 0, at = now}
end
own.epoch, own.since = epoch, since
kept[uid], known = own, epoch
local longest = 0
for _, record in pairs(kept) do
  longest = math.max(longest, record.at + math.max(record.lives, remembered) - now)
end
redis.call('SET', KEYS[1], cjson.encode(kept), 'PX', string.format('%.0f', longest))
return answer(stands, joined)
