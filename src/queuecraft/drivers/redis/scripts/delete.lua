-- ARGV: queue. Answers whether there was one.

if not registered(ARGV[1]) then
  return 0
end
remove(ARGV[1])
return 1
