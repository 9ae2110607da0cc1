-- Revokes a subject unless it is revoked. KEYS: the revocations, their order. ARGV: the time ('' is the server's),
-- the subject, the reason after a colon. Returns the value, and 1 if it is new.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
local new = redis.call('HSETNX', KEYS[1], ARGV[2], now .. ARGV[3])
if new == 1 then redis.call('ZADD', KEYS[2], 0, ARGV[2]) end
return {redis.call('HGET', KEYS[1], ARGV[2]), new}
