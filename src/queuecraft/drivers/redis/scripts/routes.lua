-- Who gets an event. `where` is the exchange, a zero, and the routing key.

local REMEMBERED = 4096 -- routes kept; routing keys may be made of user data, so there is a bound

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
  for _, packed in ipairs(redis.call('SMEMBERS', base .. 'bound:' .. exchange)) do
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
