-- tollgate-rules: a process says which stored document it had in force last, and hears which one is stored.
--
-- KEYS[1]  a hash: the document, with its revision and what signs it
-- KEYS[2]  a sorted set: when each of the latest revisions was pushed, in ms, by revision
-- KEYS[3]  a sorted set: processes, by the revision that they had in force last
-- KEYS[4]  a hash: what each process says
-- KEYS[5]  a sorted set: processes, by the time at which they were last heard, in ms
-- ARGV[1]  the process; empty: it only listens
-- ARGV[2]  the stored revision that it had in force last: a text of its own may have replaced that
-- ARGV[3]  what it says beside that
-- ARGV[4]  the ms after which a process that was not heard is gone
-- ARGV[5]  the signature of the document that it has seen last
-- ARGV[6]  how many processes that lag are named at most
-- Returns  the time in ms; the revision that is stored, or 0; the time of its push; its fields, if it is another document than
--          the one that was seen; the highest that one had in force; how many processes there are, how many lag, how many have a newer
--          one, and of those that lag the longest: name, revision, time since they lag, what they say
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now, past = string.format('%.0f', ms), string.format('%.0f', ms - ARGV[4])
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[3])
  redis.call('ZADD', KEYS[5], now, ARGV[1])
end
-- Those that were heard in the future are from before the clock went back, and say so again.
for _, range in ipairs({ { '-inf', past }, { '(' .. now, '+inf' } }) do
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], range[1], range[2], 'LIMIT', 0, 100)) do
    redis.call('ZREM', KEYS[3], gone)
    redis.call('HDEL', KEYS[4], gone)
    redis.call('ZREM', KEYS[5], gone)
  end
end
for i = 3, 5 do
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
local stored = redis.call('HMGET', KEYS[1], 'revision', 'signature', 'at')
local revision = stored[1] or '0'
local fields = {}
if stored[1] and stored[2] ~= ARGV[5] then
  fields = redis.call('HMGET', KEYS[1], 'document', 'signature', 'actor', 'reason', 'operators')
end
local lagging = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. revision, 'LIMIT', 0, ARGV[6])) do
  local has = redis.call('ZSCORE', KEYS[3], name)
  -- It lags since the first revision above its own was pushed.
  local next = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. has, '+inf', 'LIMIT', 0, 1)
  local since = next[1] and string.match(next[1], ':(.*)') or stored[3] or now
  table.insert(lagging, { name, has, since, redis.call('HGET', KEYS[4], name) or '' })
end
local highest = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or '0'
return { now, revision, stored[3] or '0', fields, highest,
  redis.call('ZCARD', KEYS[3]), redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. revision),
  redis.call('ZCOUNT', KEYS[3], '(' .. revision, '+inf'), lagging }
