-- ARGV: what is to exist, in parts: exchanges (name, properties), a queue (name, properties) or '',
-- where its dead letters go (a queue with properties, and the whole target) or '', the queue to
-- bind or '', bindings to add and bindings to take away (exchange, binding). Lists begin with
-- their length. All that may be refused comes before anything is made.

local place_in = 0
local function argument()
  place_in = place_in + 1
  return ARGV[place_in]
end
local function pairs_of_arguments()
  local found = {}
  for number = 1, tonumber(argument()) do
    found[number] = { argument(), argument() }
  end
  return found
end

local exchanges = pairs_of_arguments()
local queue, properties = argument(), argument()
local dead, dead_properties, target = argument(), argument(), argument()
local to = argument()
local bound, unbound = pairs_of_arguments(), pairs_of_arguments()

for _, exchange in ipairs(exchanges) do
  local existing = redis.call('HGET', base .. 'exchanges', exchange[1])
  if existing and existing ~= exchange[2] then
    return { 'exchange', exchange[1], existing }
  end
end
local function is_same(existing, asked)
  if existing:sub(2) ~= asked:sub(2) then
    return false
  end
  local one, other = existing:sub(1, 1), asked:sub(1, 1)
  return one == other or (one ~= 's' and other ~= 's')
end
if queue ~= '' then
  local existing = registered(queue)
  if existing and not is_same(existing, properties) then
    return { 'queue', queue, existing }
  end
end
if to ~= '' and not registered(to) then
  return { 'missing', to }
end

begin() -- a worker has to declare its queue before it can empty it
local changed = false
local function make(name, value)
  if redis.call('HSETNX', base .. 'queues', name, value) == 1 then
    changed = true
  end
  if registered(name):sub(1, 1) == 's' then
    redis.pcall('XGROUP', 'CREATE', stream(name), GROUP, '0', 'MKSTREAM')
  end
end
for _, exchange in ipairs(exchanges) do
  if redis.call('HSETNX', base .. 'exchanges', exchange[1], exchange[2]) == 1 then
    changed = true
  end
end
if dead ~= '' then
  make(dead, dead_properties)
  redis.call('HSET', base .. 'dead', queue, target)
end
if queue ~= '' then
  make(queue, properties)
end
for _, binding in ipairs(bound) do
  if redis.call('SADD', base .. 'bound:' .. binding[1], binding[2]) == 1 then
    changed = true
  end
end
for _, binding in ipairs(unbound) do
  if redis.call('SREM', base .. 'bound:' .. binding[1], binding[2]) == 1 then
    changed = true
  end
end
if changed then
  redis.call('DEL', base .. 'routes')
end
return { 'done' }
