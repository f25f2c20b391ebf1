-- What stands beside requests, for windows that count: reports, leases that come back or are granted, and what a reset leaves of
-- them. As in `WindowLender` of the prefilter.
--
-- A lease of a window ends with it, and is counted in it when it is granted. Behind the state stand the number of the window
-- and the units that are out (16 bytes), for as long as any are.
--
-- Takes what `decide` knows of a check. Returns the three numbers of a reply, then the state to write and the µs until it
-- is fresh, as an algorithm does.

return function(what, check, step, alg, raw, lent, first, limit, third, now, cost)
  if what == 4 then
    local wrote, period = unpack('<Bd', raw)
    local number, out = unpack('<dd', lent)
    -- A sliding window weighs for another one.
    local ends = (number + 1) * period
    local ttl = ends + (alg - 18) * period - now
    if wrote ~= alg or not (period >= 1 and ends > now and ttl < 2^53 and out >= 1 and out < 2^32) then return -1, 0, 0 end
    local counts = alg == 18 and pack('<dd', number, out) or pack('<dI4I4', number, 0, out)
    return -1, 0, 0, sub(raw, 1, 21) .. counts .. lent, ttl
  end
  if what == 5 then
    if alg == 20 then return -3, 0, 0 end
    -- Under a limit that holds everything; then it is a state of this quota again.
    local _, _, _, state, ttl = step(raw, first, 2^49, third, now, cost)
    if not state then return -3, 0, 0 end
    state = sub(check, 18, 38) .. sub(state, 22)
    local _, left, reset = step(state, first, limit, third, now, 0)
    return -1, left, reset, state, ttl
  end

  -- No lease, or nothing to grant from.
  if alg > 19 or not raw or unpack('<B', raw) ~= alg then return what == 6 and -1 or 0, 0, 0 end
  -- By the quota that wrote the state, which another may have taken the place of since.
  local _, first0, limit0, third0, last = unpack('<BddI4d', raw)
  if not (first0 >= 1 and first0 <= 2^53) then return what == 6 and -1 or 0, 0, 0 end
  local window = (now - now % first0) / first0
  -- A window of the future.
  if last > window then return what == 6 and -1 or 0, 0, 0 end
  local number, out = window, 0
  if lent then number, out = unpack('<dd', lent) end
  if number ~= window then out = 0 end

  if what == 6 then
    -- More may be left than was granted: units of leases before it that came back later. Those of the window before weigh in one
    -- that slides until this one is over.
    local left, generation = unpack('<dd', check, 39)
    local current, at = (now - now % first) / first, now
    if generation == current then
      -- One that is not known was counted in a state that is gone.
      if out < cost then return -1, 0, 0 end
      out = out - cost
    elseif alg == 19 and generation + 1 == current then
      at = generation * first
    else
      return -1, 0, 0
    end
    local state, ttl = raw, nil
    if left > 0 then
      local fresh_at = (generation + (alg == 19 and 2 or 1)) * first
      local _
      _, state, ttl = step_of(alg, true)(raw, first, limit, third, now, left, at, fresh_at)
      if not state then return -1, 0, 0 end
    else
      local _, _, reset = step(raw, first0, limit0, third0, now, 0)
      ttl = reset
    end
    if state ~= '' and out > 0 then state = state .. pack('<dd', window, out) end
    return -1, 0, 0, state, ttl
  end

  -- Nothing is granted of the state of another quota.
  if sub(raw, 1, 21) ~= sub(check, 18, 38) then return 0, 0, 0 end
  local reserve = unpack('<d', check, 39)
  local _, level = step(raw, first, limit, third, now, 0)
  local units = lot(cost, level, reserve - out)
  if units == 0 then return 0, 0, 0 end
  local _, _, _, state, ttl = step(raw, first, limit, third, now, units)
  return 1, units, window, state .. pack('<dd', window, out + units), ttl
end
