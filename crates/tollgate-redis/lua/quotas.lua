-- tollgate: which quotas the instances of a namespace have for each rule.
--
-- KEYS[1]  a sorted set: a rule with its quotas, by when an instance last said so, in ms
-- ARGV[1]  after how many ms without a word a member is gone
-- ARGV[i]  a member: the name of a rule, a line feed, its quotas in words; of no rule, how the instance writes keys
-- Returns  all members that are there
--
-- What was said in the future was said before the clock went back; if it still holds, it will be said again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[1]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
