-- Lists revocations. KEYS: the revocations, their order. ARGV: the start as ZRANGEBYLEX writes it, the number of
-- revocations. Returns subjects and values, alternating.
local subjects = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local answer = {}
for i, subject in ipairs(subjects) do
  answer[2 * i - 1] = subject
  answer[2 * i] = redis.call('HGET', KEYS[1], subject)
end
return answer
