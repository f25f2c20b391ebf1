-- tollgate-rules: a process says which document it has in force, and hears which one is stored.
--
-- KEYS[1]  a hash: the document, with its revision and what signs it
-- KEYS[2]  a sorted set: when each of the latest revisions was pushed, in ms, by revision
-- KEYS[3]  a sorted set: processes, by the revision that they have in force
-- KEYS[4]  a hash: what each process says
-- KEYS[5]  a sorted set: processes, by the time at which they were last heard, in ms
-- KEYS[6]  a sorted set: documents that are in force somewhere (revision, colon, hash), by that time
-- ARGV[1]  the process; empty: it only listens
-- ARGV[2]  the revision that it has in force
-- ARGV[3]  the hash of its document
-- ARGV[4]  what it says beside that
-- ARGV[5]  the ms after which a process that was not heard is gone
-- ARGV[6]  the signature of the document that it has seen last
-- ARGV[7]  how many processes that lag are named at most
-- Returns  the time in ms; the revision that is stored, or 0; the time of its push; its fields, if it is another document than
--          the one that was seen; all documents in force; how many processes there are, how many lag, how many have a newer
--          document in force, and of those that lag the longest: name, revision, time since they lag, what they say
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now, past = string.format('%.0f', ms), string.format('%.0f', ms - ARGV[5])
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[4])
  redis.call('ZADD', KEYS[5], now, ARGV[1])
  redis.call('ZADD', KEYS[6], now, ARGV[2] .. ':' .. ARGV[3])
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', past, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[3], gone)
  redis.call('HDEL', KEYS[4], gone)
  redis.call('ZREM', KEYS[5], gone)
end
redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', past)
-- What was heard in the future is from before the clock went back.
redis.call('ZREMRANGEBYSCORE', KEYS[6], '(' .. now, '+inf')
for i = 3, 6 do
  redis.call('PEXPIRE', KEYS[i], ARGV[5])
end
local stored = redis.call('HMGET', KEYS[1], 'revision', 'signature', 'at')
local revision = stored[1] or '0'
local fields = {}
if stored[1] and stored[2] ~= ARGV[6] then
  fields = redis.call('HMGET', KEYS[1], 'document', 'signature', 'actor', 'reason', 'operators')
end
local lagging = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. revision, 'LIMIT', 0, ARGV[7])) do
  local has = redis.call('ZSCORE', KEYS[3], name)
  -- It lags since the first revision above its own was pushed.
  local next = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. has, '+inf', 'LIMIT', 0, 1)
  local since = next[1] and string.match(next[1], ':(.*)') or stored[3] or now
  table.insert(lagging, name)
  table.insert(lagging, has)
  table.insert(lagging, since)
  table.insert(lagging, redis.call('HGET', KEYS[4], name) or '')
end
return { now, revision, stored[3] or '0', fields, redis.call('ZRANGE', KEYS[6], 0, -1),
  redis.call('ZCARD', KEYS[3]), redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. revision),
  redis.call('ZCOUNT', KEYS[3], '(' .. revision, '+inf'), lagging }
