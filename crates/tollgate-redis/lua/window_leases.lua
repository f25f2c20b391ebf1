-- Leases, reports and debt of counting windows: charges (3), resets (4), reports (5), returned leases (6) and grants (7), as
-- `WindowGrantor` in `tests/reference` has them.
--
-- A lease is counted in the window that grants it, and ends with that window. While units are on lease, 16 bytes follow
-- the state: the number of the window, and the units on lease.
--
-- Takes the parts of a check that `decide.lua` has parsed. Returns what an algorithm returns: the three numbers of the
-- reply, then the state to write and the µs until it is fresh.

-- The number of the window of a time. One of a calendar has that of its last microsecond.
local function number_at(first, third, now)
  if first < 2^52 then return (now - now % first) / first end
  return step_of('calendar')(first, third, now) - 1
end

return function(what, check, step, alg, raw, leases, first, limit, third, now, cost)
  if what == 3 then
    -- A charge is one of the quota that wrote the state if its limit is larger: this one does not hold all that was used.
    local at_most = unpack('<d', check, 51)
    if raw and #raw > 20 then
      local _, first0, limit0, third0 = unpack('<BddI4', raw)
      if limit0 > limit and limit0 <= 2^50 then
        local _, _, reset = step(raw, first0, limit0, third0, now, 0)
        if reset > 0 then first, limit, third = first0, limit0, third0 end
      end
    end
    -- Under an unreachable limit, so that what is used beyond the limit is known.
    local retry, left = step(raw, first, 2^52, third, now, 0)
    if retry ~= -1 then return retry, left, 0 end
    left = left - 2^52 + limit
    -- What lapses is beyond the debt.
    local charged = left + at_most
    if charged > cost then charged = cost elseif charged < 0 then charged = 0 end
    if charged == 0 then return -1, cost, 0 end
    -- The limit is restored in the state, and one that owes is marked.
    local _, _, reset, state, ttl = step(raw, first, 2^52, third, now, charged)
    state = pack('<B', left < charged and alg + 8 or alg) .. sub(state, 2, 9) .. pack('<d', limit) .. sub(state, 18)
    if left < charged then
      _, _, ttl = step(state, first, limit, third, now, 0)
      -- The next windows of a calendar may be longer.
      if first >= 2^52 then ttl = ttl * 1.125 end
    end
    return -1, cost - charged, reset, state, ttl
  end
  if what == 4 then
    local wrote, period = unpack('<Bd', raw)
    local number, out = unpack('<dd', leases)
    -- A sliding window still weighs during the next one.
    local ends, window = (number + 1) * period, number
    if period >= 2^52 then ends, window = number + 1, number + 1 end
    local ttl = ends + (alg - 18) * period - now
    if wrote ~= alg and wrote ~= alg + 8 or not (period >= 1 and ends > now and ttl < 2^53 and out >= 1 and out < 2^32) then return -1, 0, 0 end
    local counts = alg == 18 and pack('<dd', window, out) or pack('<dI4I4', number, 0, out)
    return -1, 0, 0, pack('<B', alg) .. sub(raw, 2, 21) .. counts .. leases, ttl
  end
  if what == 5 then
    if alg == 20 then return -3, 0, 0 end
    -- Take under an unreachable limit, then restore the quota of the check in the state.
    local retry, why, _, state, ttl = step(raw, first, 2^49, third, now, cost)
    if not state then return -3, retry == -3 and why or 0, 0 end
    state = sub(check, 14, 34) .. sub(state, 22)
    local _, left, reset = step(state, first, limit, third, now, 0)
    return -1, left, reset, state, ttl
  end

  -- This algorithm has no leases, or there is no state to grant from.
  local wrote = alg < 20 and raw and unpack('<B', raw)
  if wrote ~= alg and wrote ~= alg + 8 then return what == 6 and -1 or 0, 0, 0 end
  -- The window of the quota that wrote the state, which may not be the quota of this check.
  local _, first0, limit0, third0, last = unpack('<BddI4d', raw)
  if not (first0 >= 1 and first0 <= 2^53) then return what == 6 and -1 or 0, 0, 0 end
  -- Of a calendar the caller knows the windows of its time.
  local is_same = first0 == first and third0 == third
  if first0 >= 2^52 then
    is_same = first >= 2^52 and first0 % 2^18 == first % 2^18
    if not is_same then return what == 6 and -1 or 0, 0, 0 end
    first0, third0, last = first, third, last - 1
  end
  local window = number_at(first0, third0, now)
  -- The state is of a future window: the clock went back.
  if last > window then return what == 6 and -1 or 0, 0, 0 end
  local number, out = window, 0
  if leases then number, out = unpack('<dd', leases) end
  if number ~= window then out = 0 end

  if what == 6 then
    -- `left` may exceed the size of the lease: it includes units of earlier leases that were returned later. In a
    -- sliding window, units of the previous window still weigh until this one ends.
    local left, generation = unpack('<dd', check, 35)
    local current, at = number_at(first, third, now), now
    if generation == current then
      -- The state that counted this lease is gone.
      if out < cost then return -1, 0, 0 end
      out = out - cost
    elseif alg == 19 and generation + 1 == current then
      at = generation * first
    else
      return -1, 0, 0
    end
    local state, ttl = raw, nil
    if left > 0 then
      local fresh_at = first < 2^52 and (generation + (alg == 19 and 2 or 1)) * first or generation + 1
      local _
      _, state, ttl = step_of(alg, 'refund')(raw, first, limit, third, now, left, at, fresh_at)
      if not state then return -1, 0, 0 end
    else
      local _, _, reset = step(raw, first0, limit0, third0, now, 0)
      ttl = reset
    end
    if state ~= '' and out > 0 then state = state .. pack('<dd', window, out) end
    return -1, 0, 0, state, ttl
  end

  -- Another quota wrote the state: grant nothing.
  if not is_same or limit0 ~= limit or wrote ~= alg then return 0, 0, 0 end
  local reserve = unpack('<d', check, 35)
  local _, level = step(raw, first, limit, third, now, 0)
  local units = lease_size(cost, level, reserve - out)
  if units == 0 then return 0, 0, 0 end
  local _, _, _, state, ttl = step(raw, first, limit, third, now, units)
  return 1, units, window, state .. pack('<dd', window, out + units), ttl
end
