-- What is written of a check whose units `take` of its algorithm has not written at once.
--
-- Returns four functions: when one unit fits, when all units of a state are back, for how long it lives, and the write itself.

-- By the quota that wrote the state, if a denial leaves the state to it.
local function next_unit(step, alg, raw, first, limit, third, now)
  local retry, _, _, _, _, leaves = step(raw, first, limit, third, now, 1)
  if leaves then
    local _, first0, limit0, third0 = unpack('<BddI4', raw)
    local is_fewer = alg > 17 and not (limit0 >= limit and limit0 <= 2^53)
    local later = is_fewer and -1 or step(raw, first0, limit0, third0, now, 1 + limit0 - limit, 9)
    if later ~= -1 then return later end
  end
  return retry
end

-- Of a check that takes nothing under another quota than the one that wrote the state: nothing is carried over, so its units come back
-- as under that one. Not where requests wait: their queue keeps its length.
local function reset_of(step, raw, first, limit, third, now, reset)
  if not raw then return reset end
  local kind, first0, limit0, third0 = unpack('<BddI4', raw)
  if kind > 23 then kind = kind - 8 end
  if kind < 17 or kind > 21 or (first0 == first and limit0 == limit and third0 == third) then return reset end
  if kind == 17 and #raw == 45 and unpack('<d', raw, 34) > 0 then return reset end
  local _, _, by_writer = step(raw, first0, limit0, third0, now, 0, 9)
  return by_writer
end

-- For how long a state is to live that is fresh after `reset` µs: by the quota that wrote it, too, and units on lease refill after
-- their lease has ended.
local function state_ttl(step, raw, whole, reset, now)
  if not raw then return 0 end
  local kind, first0, limit0, third0 = unpack('<BddI4', raw)
  if kind > 16 and kind < 22 or kind > 23 then
    local _, _, by_writer = step(raw, first0, limit0, third0, now, 0, 9)
    if kind == 26 and first0 >= 2^52 then by_writer = by_writer * 1.125 end
    if by_writer > reset then reset = by_writer end
  end
  if #whole == 49 then return reset + 2 * LIFE end
  -- A log has that length, too.
  return #whole == 53 and kind % 8 < 4 and first0 < 2^52 and reset + 2 * first0 or reset
end

-- Writes a state that is fresh after `ttl` µs, behind what is known of blocks and of ids, and takes away `gone`, the name that it had.
-- `keeps`: its time to live is right already, and to set it again costs more than the rest of the write.
--
-- Returns nothing, or what has failed: the code of a refusal, or an error that concerns every check; and whether a key was set.
local function write(key, gone, state, ttl, blocks, ids, keeps, now, margin, wrote)
  if blocks then state, ttl = blocks .. state, math.max(ttl, unpack('<d', blocks, 2) - now) end
  if ids then state, ttl = ids .. state, math.max(ttl, unpack('<d', ids, 2) - now) end
  ttl = ttl + 999
  ttl = (ttl - ttl % 1000) / 1000 + margin
  local done
  if state == '' or ttl <= 0 then
    done = try('DEL', KEYS[key])
    if done == 0 or done == 1 then done = false end
  elseif ttl >= 2^53 then
    -- The value only looked like ours.
    return 0
  elseif keeps and not (gone or blocks or ids) then
    done = try('SET', KEYS[key], state, 'KEEPTTL')
  else
    done = try('SET', KEYS[key], state, 'PX', format('%d', ttl))
  end
  -- Others may still be written.
  if done and done.err then return refusal(done.err, wrote) or done end
  if gone then try('DEL', KEYS[gone]) end
  return nil, done
end

return next_unit, reset_of, state_ttl, write
