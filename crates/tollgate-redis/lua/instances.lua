-- tollgate: how many instances share the store.
--
-- KEYS[1]  a sorted set: each instance by when it was last heard, in ms
-- ARGV[1]  this instance
-- ARGV[2]  after how many ms without a word an instance is gone
-- Returns  how many there are, this one included
--
-- Whoever was heard in the future was heard before the clock went back; if it lives, it will be heard again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
