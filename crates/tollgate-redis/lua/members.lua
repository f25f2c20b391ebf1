-- tollgate: keeps what the instances of a namespace announce, and says who else does.
--
-- KEYS[1]  a sorted set: each member, with the time at which it was last announced, in ms
-- ARGV[1]  the ms without an announcement after which a member is removed
-- ARGV[2]  '1' for the members, '0' for their number
-- ARGV[i]  a member: an instance; or the name of a rule, a line feed, and its quotas as text; without a name, how an instance writes keys
-- Returns  all members, or how many there are
--
-- An announcement in the future is from before the clock went back. It is dropped; an instance that is still there announces it again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[1]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if ARGV[2] == '0' then return redis.call('ZCARD', KEYS[1]) end
return redis.call('ZRANGE', KEYS[1], 0, -1)
