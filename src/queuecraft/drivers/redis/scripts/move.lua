-- ARGV: queue, consumer, how many to retain, then for each: its number, where to, level, due,
-- headers, the message. Answers with a letter for each, as `send` does; s for one that is not held
-- any more.

local answers, fault = {}, false
for at = 4, #ARGV, 6 do
  local number, to, level, due, headers, value = unpack(ARGV, at, at + 5)
  local answer = '1'
  if not is_held(number) then
    answer = 's'
  else
    local found = resolve(to, headers)
    if found == nil then
      answer = 'h'
    elseif found == '' then
      answer = '0'
    else
      local ok, result = pcall(function()
        begin() -- it takes about the room that it leaves
        return store(to, found, level, tonumber(due), headers, { value })
      end)
      if not ok then
        answer = 'e'
        fault = type(result) == 'table' and result.err or tostring(result)
      elseif not result then
        answer = '0'
      else
        settle({ number })
      end
    end
  end
  answers[#answers + 1] = answer
end
return { table.concat(answers), fault }
