-- Decides single questions of many callers, each for itself: about a token bucket or a nonce. What costs most
-- of a script is that it runs at all, so those who ask at the same time share one.
--
-- KEYS: a row for each question.
-- ARGV: the time ('' is the server's), '0', then for each
--   bucket: 'b' shadow cost capacity unit refill overdraw, and what more is given back than it holds
--   nonce: 'n' ttl_ms
-- Answers the time, and for each whether it passed, and the row as that question found it.
--
-- Nothing is written before everything is decided, so an error leaves all as it was.

local answer, rows, untils = {now}, {}, {}
local stored = redis.call('MGET', unpack(KEYS))
local at = 3
for i, key in ipairs(KEYS) do
  local row = rows[key] or stored[i]
  local pass, after, till
  if ARGV[at] == 'b' then
    pass, after, till = take(row, at + 3, tonumber(ARGV[at + 2]))
    -- A rule that is only tried out refuses nothing.
    pass = pass or ARGV[at + 1] == '1'
    at = at + 8
  else
    local used = row and string.match(row, '^%d+ (%d+)$')
    assert(used or not row, 'CORRUPT nonce')
    pass = not used or tonumber(used) <= now
    if pass then
      till = now + ARGV[at + 1]
      after = fmt('%d %d', floor(now / 1000), till)
    end
    at = at + 2
  end
  answer[2 * i], answer[2 * i + 1] = pass and 1 or 0, row
  if after then rows[key], untils[key] = after, till end
end
for key, row in pairs(rows) do write(key, row, untils[key]) end
return answer
