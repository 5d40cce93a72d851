-- The environment of scripts, as in Redis: a few read-only libraries, and no new globals.
-- Takes the functions of the server. Returns the environment, the table of globals, and a function that runs a script.
local call, try, readable, describe, sha1hex, encode, decode, null = ...
local error, setmetatable, tostring, xpcall, plain_pcall = error, setmetatable, tostring, xpcall, pcall

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local function read_only(library)
  return setmetatable({}, {__index = library, __newindex = refuse})
end

-- A script that catches the error of a command gets a text.
local function caught(ok, first, ...)
  if ok then
    return ok, first, ...
  end
  return ok, readable(first)
end

local redis = {
  call = call,
  pcall = try,
  sha1hex = sha1hex,
  error_reply = function(text)
    if text == nil or type(text) ~= 'string' then
      return {err = 'ERR wrong number or type of arguments'}
    end
    if string.sub(text, 1, 1) == '-' then
      text = string.sub(text, 2)
    end
    if not string.find(text, ' ', 1, true) then
      text = 'ERR ' .. text
    end
    return {err = (string.gsub(text, '[\r\n]', ' '))}
  end,
  status_reply = function(text)
    return {ok = text}
  end,
  log = function() end,
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
}

local globals = {
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  rawequal = rawequal, rawget = rawget, rawset = rawset, select = select, setmetatable = setmetatable,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack, _VERSION = _VERSION,
  pcall = function(...)
    return caught(plain_pcall(...))
  end,
  string = read_only(string), table = read_only(table), math = read_only(math),
  redis = read_only(redis),
  cjson = read_only({encode = encode, decode = decode, null = null}),
}
-- Scripts must be deterministic.
math.random, math.randomseed = nil, nil

setmetatable(globals, {__index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end})

local environment = setmetatable({}, {__index = globals, __newindex = refuse})

local function run(script)
  return xpcall(script, describe)
end

return environment, globals, run
