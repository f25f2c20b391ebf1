-- tollgate: collects the quotas that the instances of a namespace have for each rule.
--
-- KEYS[1]  a sorted set: a rule with its quotas, with the time at which an instance last announced them, in ms
-- ARGV[1]  the ms without an announcement after which a member is removed
-- ARGV[i]  a member: the name of a rule, a line feed, its quotas as text; without a name, how the instance writes keys
-- Returns  all members
--
-- An announcement in the future is from before the clock went back. It is dropped; an instance that still has these
-- quotas announces them again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[1]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
