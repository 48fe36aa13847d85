-- Who gets an event. `where` is the exchange, a zero, and the routing key.

local REMEMBERED = 4096 -- routes kept; routing keys may be made of user data, so there is a bound

local MANY = 64 -- bindings of an exchange that are not all looked at for every route

local function split(text)
  local words = {}
  if text ~= '' then
    for word in (text .. '.'):gmatch('([^.]*)%.') do
      words[#words + 1] = word
    end
  end
  return words
end

local function topic_matches(pattern, key)
  if pattern == key or pattern == '#' then
    return true
  end
  if not pattern:find('[*#]') then
    return false
  end
  local words, reachable = split(key), { [0] = true }
  for _, part in ipairs(split(pattern)) do
    local following, any, on = {}, false, false
    for at = 0, #words do
      if part == '#' then
        on = on or reachable[at]
        if on then
          following[at], any = true, true
        end
      elseif reachable[at] and at < #words and (part == '*' or part == words[at + 1]) then
        following[at + 1], any = true, true
      end
    end
    if not any then
      return false
    end
    reachable = following
  end
  return reachable[#words] == true
end

-- Names and values in turn, values as text that tells their type; those of a binding after its
-- queue, pattern, mode and the headers as they were given.
local function headers_match(mode, binding, headers)
  local given = {}
  for at = 1, #headers, 2 do
    given[headers[at]] = headers[at + 1]
  end
  for at = 5, #binding, 2 do
    local found = given[binding[at]] == binding[at + 1]
    if found and mode == 'any' then
      return true
    elseif not found and mode == 'all' then
      return false
    end
  end
  return mode == 'all'
end

-- The bindings of an exchange that may want a routing key. Of many, nearly all name a key: those are
-- kept by it in an index, and all others together. It holds as long as the routes do, among which it
-- is marked. A server that is out of memory does without.
local function candidates(kind, exchange, key)
  local bound, index = base .. 'bound:' .. exchange, base .. 'index:' .. exchange
  if (kind ~= 't' and kind ~= 'd') or redis.call('SCARD', bound) < MANY then
    return redis.call('SMEMBERS', bound)
  end
  local mark = '\0\0' .. exchange
  local found = redis.call('HMGET', index, '*', '=' .. key)
  if found[1] and redis.call('HEXISTS', base .. 'routes', mark) == 1 then
    local some = cmsgpack.unpack(found[1])
    for _, member in ipairs(found[2] and cmsgpack.unpack(found[2]) or {}) do
      some[#some + 1] = member
    end
    return some
  end
  local members, named, others = redis.call('SMEMBERS', bound), {}, {}
  for _, member in ipairs(members) do
    local pattern = cmsgpack.unpack(member)[2]
    local some = others
    if not pattern:find('[*#]') then
      some = named[pattern] or {}
      named[pattern] = some
    end
    some[#some + 1] = member
  end
  -- A trial: what is refused has written nothing, and does not let the rest of the script write.
  local kept = redis.pcall('HSET', index, '*', cmsgpack.pack(others))
  if type(kept) == 'table' and kept.err then
    return members
  end
  redis.call('DEL', index)
  redis.call('HSET', index, '*', cmsgpack.pack(others))
  for pattern, some in pairs(named) do
    redis.call('HSET', index, '=' .. pattern, cmsgpack.pack(some))
  end
  redis.call('HSET', base .. 'routes', mark, '')
  return members
end

-- Queues, each after the letter that says how it is kept, with zeros between; nil if the headers
-- decide and were not given.
local function route(where, headers)
  local known = redis.call('HGET', base .. 'routes', where)
  if known then
    return known
  end
  local exchange, key = where:match('^(.-)%z(.*)$')
  local kind = redis.call('HGET', base .. 'exchanges', exchange)
  if not kind then
    return ''
  end
  kind = kind:sub(1, 1)
  if kind == 'h' and headers == '' then
    return nil
  end
  local given = kind == 'h' and cmsgpack.unpack(headers)
  local found, seen = {}, {}
  for _, packed in ipairs(candidates(kind, exchange, key)) do
    local binding = cmsgpack.unpack(packed)
    local queue, pattern, mode = binding[1], binding[2], binding[3]
    if
      not seen[queue]
      and (
        kind == 'f'
        or (kind == 'd' and pattern == key)
        or (kind == 't' and topic_matches(pattern, key))
        or (kind == 'h' and headers_match(mode, binding, given))
      )
    then
      local as = registered(queue)
      if as then
        seen[queue] = true
        found[#found + 1] = as:sub(1, 1) .. queue
      end
    end
  end
  local result = table.concat(found, '\0')
  if kind ~= 'h' then
    if redis.call('HLEN', base .. 'routes') >= REMEMBERED then
      redis.call('DEL', base .. 'routes')
    end
    redis.pcall('HSET', base .. 'routes', where, result) -- a server out of memory does without
  end
  return result
end
