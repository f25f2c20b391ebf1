-- tollgate: lets one instance measure the namespace, and the others read what it has found.
--
-- KEYS[1]  the instance that measures
-- KEYS[2]  what was found last
-- ARGV[1]  this instance
-- ARGV[2]  the ms for which it alone measures from now on
-- ARGV[3]  what it has found; '': nothing yet
-- ARGV[4]  the ms for which that is kept
-- Returns  { '1' if this instance measures, '0' if another one does; what was found last, or '' }
--
-- An instance that ends without a word is followed by another one when its time is over.
local by = redis.call('GET', KEYS[1])
if by and by ~= ARGV[1] then
  return { '0', redis.call('GET', KEYS[2]) or '' }
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[3] ~= '' then
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return { '1', redis.call('GET', KEYS[2]) or '' }
