-- tollgate: counts the instances that share the store.
--
-- KEYS[1]  a sorted set: each instance, with the time of its last heartbeat in ms
-- ARGV[1]  this instance
-- ARGV[2]  the ms without a heartbeat after which an instance no longer counts
-- Returns  the number of instances, including this one
--
-- A heartbeat in the future is from before the clock went back. It is dropped; a live instance sends the next one soon.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
