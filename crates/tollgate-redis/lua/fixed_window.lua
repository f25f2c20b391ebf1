-- Fixed window, as in `FixedWindow` of the core.
--
-- Quota: period in µs, limit. State: the window's number and the units taken in it (16 bytes). A state without units
-- equals none.

if refunding then
  return function(raw, period, _, _, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local alg, period0, _, _, window, used = unpack('<BddI4dd', raw)
    if alg ~= 18 or not (window >= 0 and window <= 2^53 and used >= 0 and used <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    local ends = (window + 1) * period0
    if period0 == period then
      -- Units of a window that is over are not given back in a later one.
      if fresh_at ~= ends then return -1 end
    elseif now >= fresh_at or (at - at % period0) / period0 ~= window then
      -- Windows of another length: their own may have been over when they were to be carried over, or this one not begun.
      return -1
    end
    if cost >= used then return -1, '', 0 end
    return -1, sub(raw, 1, 29) .. pack('<d', used - cost), ends - now
  end
end

return function(raw, period, limit, _, now, cost)
  local current = (now - now % period) / period
  local window, used, foreign = current, 0, false
  -- A window that is over, of another quota: it is carried over as it is.
  local over, over_used
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local alg, period0, limit0, _, window0, used0 = unpack('<BddI4dd', raw)
    if alg ~= 18 or not (window0 >= 0 and window0 <= 2^53 and used0 >= 0 and used0 <= 2^53) then return -3, 0, 0 end
    foreign = period0 ~= period or limit0 ~= limit
    if foreign then
      if not (period0 >= 1 and period0 <= 2^53) then return -3, 0, 0 end
      -- In a window of another length, what counts now counts as if it had just been taken.
      if period0 ~= period then window0, used0 = current, (window0 + 1) * period0 > now and used0 or 0 end
    end
    -- A window of the future counts, so that time that goes back never refills.
    if window0 >= current then
      window, used = window0, used0
    elseif foreign then
      over, over_used = window0, used0
    end
  end
  local left = limit - used
  if left < 0 then left = 0 end
  if cost <= left then
    local keeps = used > 0 and not foreign
    used = used + cost
    local reset = 0
    if used > 0 then reset = (window + 1) * period - now end
    if cost == 0 then return -1, left, reset end
    left = left - cost
    local state = pack('<BddI4dd', 18, period, limit, 0, window, used)
    return -1, left, reset, state, reset, foreign, keeps, left < cost and reset
  end
  -- Not to the window of now: a clock that goes back over a boundary would free the window it had just left.
  local repair = foreign
  if window > current + 1 then window, repair = current + 1, true end
  local reset = (window + 1) * period - now
  local retry = reset
  if cost > limit then retry = -2 end
  if used == 0 then reset = 0 end
  if not repair then return retry, left, reset end
  if over then window, used = over, over_used end
  if used == 0 then return retry, left, reset, '', 0, foreign end
  return retry, left, reset, pack('<BddI4dd', 18, period, limit, 0, window, used), reset, foreign
end
