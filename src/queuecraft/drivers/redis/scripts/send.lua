-- ARGV: 'atomic' or '', then for each run of messages: where to, level, due, headers, how many,
-- and the messages. Answers with a letter for each run: 1 stored, 0 nowhere to go, h for headers
-- that are needed, e for an error, which follows.

local runs, answers, fault = {}, {}, false
local at, sound = 2, true
while at <= #ARGV do
  local count = tonumber(ARGV[at + 4])
  local found = resolve(ARGV[at], ARGV[at + 3])
  local answer = (found == nil and 'h') or (found == '' and '0') or '1'
  sound = sound and answer == '1'
  runs[#runs + 1] = { at, count, found }
  answers[#runs] = answer
  at = at + 5 + count
end
if ARGV[1] == 'atomic' and not sound then
  return { table.concat(answers) }
end
for number, run in ipairs(runs) do
  local start, count, found = unpack(run)
  if answers[number] == '1' then
    local values = {}
    for place_of = start + 5, start + 4 + count do
      values[#values + 1] = ARGV[place_of]
    end
    local ok, result = pcall(
      store, ARGV[start], found, ARGV[start + 1], tonumber(ARGV[start + 2]), ARGV[start + 3], values
    )
    if not ok then
      answers[number] = 'e'
      fault = type(result) == 'table' and result.err or tostring(result)
    elseif not result then
      answers[number] = '0'
    end
  end
end
return { table.concat(answers), fault }
