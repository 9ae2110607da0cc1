-- Decides about one token bucket, which is what most questions ask: `admit.lua` with everything left out
-- that such a question does not need. It takes the same arguments and gives the same answer.

local row = redis.call('GET', KEYS[1])
local pass, after, till = take(row, 9, tonumber(ARGV[8]))
if after and ARGV[2] ~= '1' then write(KEYS[1], after, till) end
-- A rule that is only tried out refuses nothing.
return {now, (pass or ARGV[7] == '1') and 1 or 0, row}
