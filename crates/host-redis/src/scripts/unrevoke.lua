-- Removes a revocation. KEYS: the revocations, their order. ARGV: the subject. Returns 1 if there was one.
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
