-- Entries that the group has been given, and nobody has. The server keeps what a script does as one
-- block of its log. If a crash cuts that, the server does not carry it out, but leaves what is whole
-- of it in the log: after the next crash it does come true, before all that was done meanwhile.

local SOME = 20 -- entries in one answer, all that they hold included
local FEW = 1000 -- retained entries that may be looked through whenever a consumer joins

-- How many entries are neither held nor done with.
local function left(queue)
  return redis.call('XLEN', stream(queue))
    - redis.call('LLEN', base .. 'done:' .. queue)
    - group_of(queue)['pending']
end

-- Give entries back that were passed over, so many at most.
local function take_up(queue, count)
  if count <= 0 then
    return -- as nearly always; to know what is retained costs the whole list of it
  end
  local key, done = stream(queue), {}
  for _, id in ipairs(redis.call('LRANGE', base .. 'done:' .. queue, 0, -1)) do
    done[id] = true
  end
  local from, last = '-', last_given(queue)
  while count > 0 do
    local found = redis.call('XRANGE', key, from, last, 'COUNT', SOME)
    if #found == 0 then
      break
    end
    for _, entry in ipairs(found) do
      local id = entry[1]
      if not done[id] and #redis.call('XPENDING', key, GROUP, id, id, 1) == 0 then
        keep(queue, { id })
        count = count - 1
      end
      from = '(' .. id
    end
  end
end

-- Give back all that nobody will be given otherwise: what is held by consumers whom nobody knows,
-- what is kept here and not among what was given back, and what nobody has.
local function recover(queue)
  local key, back = stream(queue), base .. 'back:' .. queue
  local found = redis.pcall('XPENDING', key, GROUP)
  if found.err then -- there is no such group
    return
  end
  local expected = redis.call('ZCARD', back)
  for _, holder in ipairs(found[4] or {}) do
    if holder[1] == HERE then
      local from = tonumber(holder[2]) ~= expected and '-'
      while from do
        local kept = redis.call('XPENDING', key, GROUP, from, '+', 100, HERE)
        from = kept[1] and '(' .. kept[#kept][1]
        for _, entry in ipairs(kept) do
          redis.call('ZADD', back, 0, place(entry[1]))
        end
      end
    elseif not is_known(queue, holder[1]) then
      give_back_entries(queue, holder[1])
    end
  end
  if redis.call('LLEN', base .. 'done:' .. queue) <= FEW then -- else when nothing else is left
    take_up(queue, left(queue))
  end
end
