-- ARGV: queue, consumer, how many to retain, ids. Answers with how many were still held.

if not is_known(ARGV[1], ARGV[2]) then
  return 0
end
local count = 0
for at = 4, #ARGV, 500 do
  count = count + settle({ unpack(ARGV, at, math.min(at + 499, #ARGV)) })
end
return count
