-- Reads the claims of other operators on a member that they share. In the same step it makes or renews the caller's claim, so that every
-- later operator reads it.
-- KEYS: the record. ARGV: JSON with these fields:
--   uid: UID of the caller's quorum. name: its name. list: its members. epoch: its epoch in the caller's lists.
--   write: whether the script can make the claim. generation: generation of the specification that the claim is from.
--   ttl: the maximum time to live of its locks in ms, for which its fences wait. ended: whether all holds of earlier epochs have expired.
--   lives: how long the claim is valid without a renewal, in ms. joined: whether the claim was recorded on every external member.
-- Returns JSON with these fields:
--   kept: whether the record contains the caller's claim. stood: whether an earlier claim with this list was recorded on every external member.
--   others: the claims of other operators by UID, each with name, list, ttl, and left, the time in ms until it expires.
--   epoch: the epoch of the caller's quorum in the record. since: when the record first contained that quorum, in ms of this server's clock.
-- The script makes no claim if another operator's claim has another list or another ttl. It writes a higher epoch even without a claim, and
-- remembers it for a week, because guard.lua checks votes by this epoch.
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
-- Each later write keeps `since`. So a new `since` proves that the record was lost, because the process was emptied.
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
  -- The record has a higher epoch, so the caller has an old list of its own members. It makes no claim.
  return answer(false, false)
end
local joined = own ~= nil and own.list == ask.list and own.joined == 1
if own and known == epoch and own.generation > ask.generation then
  -- Another replica of the caller has a newer specification. Its claim is valid for the caller while that replica renews it.
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
