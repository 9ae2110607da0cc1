-- Decides questions of many callers, each for itself and each about one token bucket or one nonce. Most of a
-- script's cost is the call itself, so callers who ask at the same time share one.
--
-- KEYS: a row for each question.
-- ARGV: the time ('' is the server's), '0', then for each
--   bucket: 'b' shadow cost capacity unit refill overdraw, and what is given back beyond its capacity
--   nonce: 'n' ttl_ms
-- Returns the time, and for each question '1' if it passed, and the row as that question found it.
--
-- Nothing is written before everything is decided, so an error changes nothing.

local answer, rows, untils = {now}, {}, {}
local stored = read(1, #KEYS)
local at = 3
for i, key in ipairs(KEYS) do
  local row = rows[key] or stored[i]
  local pass, after, till
  if ARGV[at] == 'b' then
    pass, after, till = take(row, at + 3, tonumber(ARGV[at + 2]))
    -- A shadow rule refuses nothing.
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
