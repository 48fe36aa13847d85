-- ARGV: none. Answers with how many were buried.

return reap(now())
