-- tollgate-rules: puts a document in the place of another, if it is still the one that was seen.
--
-- KEYS[1]  a hash: the document, with its revision and what signs it
-- KEYS[2]  a sorted set: when each of the latest revisions was pushed, in ms, by revision
-- KEYS[3]  a stream: the audit
-- ARGV[1]  the revision that was seen; 0 for none
-- ARGV[2]  the new revision
-- ARGV[3]  the document
-- ARGV[4]  its signature
-- ARGV[5]  who pushes it
-- ARGV[6]  why
-- ARGV[7]  the channel that processes listen to
-- ARGV[8]  about how many records the audit keeps
-- ARGV[9]  what changes, in words
-- ARGV[10] what operators set, or empty
-- Returns  whether it is stored (1 or 0), and the revision that is stored now
local stored = redis.call('HGET', KEYS[1], 'revision') or '0'
if stored ~= ARGV[1] then
  return { 0, stored }
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'revision', ARGV[2], 'document', ARGV[3], 'signature', ARGV[4],
  'actor', ARGV[5], 'reason', ARGV[6], 'at', now, 'operators', ARGV[10])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[2] .. ':' .. now)
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -101)
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[8], '*', 'what', 'accepted', 'actor', ARGV[5],
  'before', ARGV[1], 'after', ARGV[2], 'changes', ARGV[9], 'reason', ARGV[6])
-- A server may forbid the channel. Processes that do not hear of it look every few seconds.
redis.pcall('PUBLISH', ARGV[7], ARGV[2])
return { 1, ARGV[2] }
