-- tollgate: looks at some keys of a server, for the size of a namespace. Writes nothing.
--
-- KEYS[1]  any name of the namespace on this server; nothing is there
-- ARGV[1]  the namespace
-- ARGV[2]  where to go on, '0' to begin
-- ARGV[3]  how many keys to look at, about
-- ARGV[4]  one in how many keys of the namespace is asked for its memory
-- Returns  { where to go on, '0' at the end; the keys of the namespace that it has seen; how many of them were asked; their
--          bytes; at the beginning the bytes that the server uses and those that it may use, 0 without a bound, and else 0 }, as texts
--
-- The keys that are asked cannot be declared: which they are is learnt here. All of them are on this server.
local page = redis.call('SCAN', ARGV[2], 'COUNT', ARGV[3])
local whole, tagged = '{' .. ARGV[1] .. '}:', ARGV[1] .. ':{'
local own, asked, bytes = 0, 0, 0
for _, key in ipairs(page[2]) do
  if string.sub(key, 1, #whole) == whole or string.sub(key, 1, #tagged) == tagged then
    own = own + 1
    if own % ARGV[4] == 1 then
      -- A key may expire meanwhile.
      local usage = redis.call('MEMORY', 'USAGE', key)
      if usage then
        asked = asked + 1
        bytes = bytes + usage
      end
    end
  end
end
local memory = ARGV[2] == '0' and redis.call('INFO', 'memory') or ''
local used, most = string.match(memory, 'used_memory:(%d+)'), string.match(memory, 'maxmemory:(%d+)')
return { page[1], tostring(own), tostring(asked), string.format('%.0f', bytes), used or '0', most or '0' }
