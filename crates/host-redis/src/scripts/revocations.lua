-- Lists revocations. KEYS: the revocations, their order. ARGV: where to begin as ZRANGEBYLEX says it,
-- how many. Answers subjects and what stands, in turn.
local subjects = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local answer = {}
for i, subject in ipairs(subjects) do
  answer[2 * i - 1] = subject
  answer[2 * i] = redis.call('HGET', KEYS[1], subject)
end
return answer
