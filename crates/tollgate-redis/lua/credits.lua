-- Balances of credits, as in `credits.rs` of tollgate-core: what a request does with them. `credits_change.lua` grants and revokes.
--
-- State: '<Bdd', 24, the units, and when they end; then what `credits_change.lua` knows of each grant.
--
-- The first function opens the balance of a check, whose key and other name are the last of it, and returns it: its key, the state, its
-- units, and when they end; or nil and an error. The second writes other units, and returns what the server says.

local function open(check, moves, now)
  local key, other = unpack('<HH', check, #check - 3)
  local balance = { key = key, units = 0, ends = 0 }
  local raw = try('GET', KEYS[key])
  if not raw and other > 0 then
    raw = try('GET', KEYS[other])
    if not moves then balance.key = other elseif raw then balance.gone = other end
  end
  if not raw then return balance end
  if raw.err then return nil, raw end
  if #raw < 17 or unpack('<B', raw) ~= 24 then return nil, { err = 'WRONGTYPE' } end
  balance.units, balance.ends = unpack('<dd', raw, 2)
  if balance.ends <= now then balance.units = 0 end
  balance.raw = raw
  return balance
end

local function keep(balance, units, now, margin)
  local state = pack('<Bd', 24, units) .. sub(balance.raw, 10)
  if not balance.gone then return try('SET', KEYS[balance.key], state, 'KEEPTTL') end
  local ttl = balance.ends - now + 999
  ttl = (ttl - ttl % 1000) / 1000 + margin
  local done = try('SET', KEYS[balance.key], state, 'PX', format('%d', ttl))
  if not done.err then try('DEL', KEYS[balance.gone]) end
  return done
end

return open, keep
