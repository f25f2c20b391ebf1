-- tollgate: grants credits, takes a grant back, or tells a balance, as in `credits.rs` of tollgate-core.
--
-- KEYS[1]  the balance, and KEYS[2] its other name, if it has one; `prelude.lua` says which of the two is written
-- ARGV[1]  the time, as in `prelude.lua`
-- ARGV[2]  '<BBdd': 0 tell, 1 grant, 2 revoke, 3 begin with this balance unless there is one, 4 correct; 1 if states move to their first
--          name; the units and the end of a grant or the balance; then the 8 bytes of a grant's id, or for 3 the grants, as in the state
-- Returns  the time; 0, or why nothing was done: 1 the grant has ended, 2 there are too many, 3 there would be too many units; the units
--          of the balance, when they end, and how many were granted or taken back
--
-- State: '<Bdd', 24, the units, and when they end; then for each grant that has not ended the 8 bytes of its id and '<dd', its units, 0
-- once it was taken back, and its end.
local codec = struct or string
local pack, unpack, sub, format = codec.pack, codec.unpack, string.sub, string.format
local MOST_GRANTS, MAX_UNITS = 256, 999999999999999

local now, margin = 0, 0
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now, margin = unpack('<dd', ARGV[1])
end
local what, moves, granted, granted_until = unpack('<BBdd', ARGV[2])
local id = sub(ARGV[2], 19)

local key, gone = KEYS[1], nil
local raw = redis.call('GET', key)
if not raw and KEYS[2] then
  raw = redis.call('GET', KEYS[2])
  if moves == 0 then key = KEYS[2] elseif raw then gone = KEYS[2] end
end
local units, ends, grants, count, known = 0, 0, '', 0, nil
if raw then
  if #raw < 17 or #raw % 24 ~= 17 or unpack('<B', raw) ~= 24 then
    return redis.error_reply('ERR the value of the key is no balance of tollgate')
  end
  units, ends = unpack('<dd', raw, 2)
  if ends <= now then units = 0 end
  for place = 18, #raw, 24 do
    local grant = sub(raw, place, place + 23)
    local _, ended = unpack('<dd', grant, 9)
    if ended > now then
      if sub(grant, 1, 8) == id then known = #grants end
      grants, count = grants .. grant, count + 1
    end
  end
end

local status, changed, writes = 0, 0, false
if what == 1 and not known then
  if granted_until <= now then
    status = 1
  elseif count >= MOST_GRANTS then
    status = 2
  elseif units + granted > MAX_UNITS then
    status = 3
  else
    units, changed, writes = units + granted, granted, true
    if granted_until > ends then ends = granted_until end
    grants = grants .. id .. pack('<dd', granted, granted_until)
  end
elseif what == 2 and known then
  changed = unpack('<d', grants, known + 9)
  if changed > units then changed = units end
  units, writes = units - changed, true
  grants = sub(grants, 1, known + 8) .. pack('<d', 0) .. sub(grants, known + 17)
elseif what == 3 and ends <= now and granted_until > now then
  units, ends, grants, changed, writes = granted, granted_until, id, granted, true
elseif what == 4 and ends > now then
  local before = units
  units = math.max(0, math.min(units + granted, MAX_UNITS))
  changed, writes = math.abs(units - before), true
end
if writes then
  local ttl = ends - now + 999
  ttl = (ttl - ttl % 1000) / 1000 + margin
  redis.call('SET', key, pack('<Bdd', 24, units, ends) .. grants, 'PX', format('%d', ttl))
  if gone then redis.call('DEL', gone) end
end
local reply = { now, status, units, ends, changed }
-- In Lua 5.4 a number that was divided is a float, and stays one in a reply.
if math.type then
  for place = 1, 5 do reply[place] = math.floor(reply[place]) end
end
return reply
