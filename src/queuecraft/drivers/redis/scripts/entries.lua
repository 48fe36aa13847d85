-- Entries of a stream as messages.

-- What an entry holds. One of somebody else's may have any fields.
local function value_of(fields)
  if #fields == 2 then
    return fields[2]
  end
  local named = {}
  for at = 1, #fields, 2 do
    named[fields[at]] = fields[at + 1]
  end
  return cjson.encode(named)
end

-- Once more delivered; the id of an entry is its own.
local function told(queue, id, fields)
  local value = value_of(fields)
  local count = redis.call('HGET', base .. 'again:' .. queue, id)
  if count then
    return AGAIN .. string.format('%08x00', tonumber(count)) .. value
  end
  return value
end

-- What the server knows of the group.
local function group_of(queue)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream(queue))) do
    local named = {}
    for at = 1, #group, 2 do
      named[group[at]] = group[at + 1]
    end
    if named['name'] == GROUP then
      return named
    end
  end
  return { ['last-delivered-id'] = '0-0', pending = 0 }
end

-- The last entry that the group has been given.
local function last_given(queue)
  return group_of(queue)['last-delivered-id']
end

local function unread(queue, limit)
  if redis.call('EXISTS', stream(queue)) == 0 then
    return {}
  end
  return redis.call('XRANGE', stream(queue), '(' .. last_given(queue), '+', 'COUNT', limit)
end

-- The next entries, without taking them.
local function next_entries(queue, limit)
  local found = {}
  for _, position in ipairs(redis.call('ZRANGE', base .. 'back:' .. queue, 0, limit - 1)) do
    local id = id_at(position)
    for _, entry in ipairs(redis.call('XRANGE', stream(queue), id, id)) do
      found[#found + 1] = told(queue, id, entry[2])
    end
  end
  if #found < limit then
    for _, entry in ipairs(unread(queue, limit - #found)) do
      found[#found + 1] = value_of(entry[2])
    end
  end
  return found
end

local function pending(queue)
  local found = redis.pcall('XPENDING', stream(queue), GROUP)
  return found.err and 0 or found[1]
end
