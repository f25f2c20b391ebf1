-- Sliding window of two weighted counters, as in `SlidingWindow` of the core.
--
-- Quota: period in µs, limit, and the grain in µs in which the overlap with the window before is counted. State: the
-- window's number, the units of the one before, the units of this one (16 bytes).

if refunding then
  return function(raw, period, _, _, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local alg, period0, _, _, window, previous, used = unpack('<BddI4dI4I4', raw)
    if alg ~= 19 or not (window >= 0 and window <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    local ends = (window + 1) * period0
    if period0 ~= period then
      -- What they weigh under the other quota, where they weigh less and less once their window is the one before.
      local weighs = fresh_at - now
      if weighs <= 0 then return -1 end
      if weighs < period then cost = muldiv(cost, weighs, period) end
      -- They were carried over into the window in which they were taken, or a later one.
      local first = (at - at % period0) / period0
      if first == window then
        used = cost < used and used - cost or 0
      elseif first + 1 == window then
        if cost > previous then
          cost, previous = cost - previous, 0
          used = cost < used and used - cost or 0
        else
          previous = previous - cost
        end
      else
        return -1
      end
    -- The units were taken in the window that ends one period before they are forgotten.
    elseif fresh_at == ends + period then
      used = cost < used and used - cost or 0
    elseif fresh_at == ends then
      previous = cost < previous and previous - cost or 0
    else
      return -1
    end
    local ttl = used > 0 and ends + period0 - now or previous > 0 and ends - now or 0
    return -1, sub(raw, 1, 29) .. pack('<I4I4', previous, used), ttl
  end
end

-- ⌈previous · overlap / period⌉: the window before weighs as much of itself as still overlaps the one that slides.
local function weighted(previous, ends, at, period, grain)
  local grains = (period - period % grain) / grain
  if grains < 1 then grains = 1 end
  local overlap = ends - at
  overlap = overlap + (-overlap) % grain
  overlap = overlap / grain
  if overlap > grains then overlap = grains end
  local product = previous * overlap
  if product >= 2^53 then
    -- Counted under a far larger limit that was lowered since.
    local whole, part = muldiv(previous, overlap, grains)
    return part > 0 and whole + 1 or whole
  end
  local part = product % grains
  return part > 0 and (product - part) / grains + 1 or product / grains
end

return function(raw, period, limit, grain, now, cost)
  local current = (now - now % period) / period
  local window, previous, used, at = current, 0, 0, now
  local repair, foreign = false, false
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local alg, period0, limit0, grain0, window0, previous0, used0 = unpack('<BddI4dI4I4', raw)
    if alg ~= 19 or not (window0 >= 0 and window0 <= 2^53) then return -3, 0, 0 end
    foreign = period0 ~= period or limit0 ~= limit or grain0 ~= grain
    local current0 = current
    if foreign then
      if not (period0 <= 2^53 and grain0 >= 1 and grain0 <= period0) then return -3, 0, 0 end
      if period0 ~= period then current0 = (now - now % period0) / period0 end
    end
    -- As it is seen now; a window of the future counts from its start.
    local at0 = now
    if window0 > current0 and previous0 + used0 > 0 then
      at0 = window0 * period0
    elseif window0 ~= current0 then
      previous0 = window0 + 1 == current0 and used0 or 0
      used0, window0 = 0, current0
    end
    if period0 ~= period then
      -- Another window: what counts now counts in the new one as if it had just been taken.
      used0 = used0 + weighted(previous0, (window0 + 1) * period0, at0, period0, grain0)
      if used0 >= 2^32 then used0 = 2^32 - 1 end
      previous0, window0, at0 = 0, current, now
    end
    window, previous, used, at, repair = window0, previous0, used0, at0, foreign
  end

  local ends = (window + 1) * period
  local left = limit - used
  if left > 0 and previous > 0 then left = left - weighted(previous, ends, at, period, grain) end
  if left < 0 then left = 0 end
  local fits, keeps, reset, state = cost <= left
  if fits then
    keeps = used > 0 and not foreign
    used = used + cost
    -- Only a report takes more than the limit, which is below that.
    if used >= 2^32 then used = 2^32 - 1 end
    reset = used > 0 and ends + period - now or previous > 0 and ends - now or 0
    if cost == 0 then return -1, left, reset end
    state = pack('<BddI4dI4I4', 19, period, limit, grain, window, previous, used)
    left = left - cost
    if left >= cost then return -1, left, reset, state, reset, foreign, keeps end
  -- A window far ahead is repaired: to the next one, at whose start both counters weigh what they weigh now.
  elseif window > current + 1 then
    window, repair = current + 1, true
    ends, at = (window + 1) * period, window * period
    left = limit - used
    if left > 0 and previous > 0 then left = left - weighted(previous, ends, at, period, grain) end
    if left < 0 then left = 0 end
  end
  reset = used > 0 and ends + period - now or previous > 0 and ends - now or 0
  -- When it fits, or once more.
  local retry = -2
  if cost <= limit then
    local room, sliding = limit - used - cost, previous
    if room < 0 then
      -- Room comes only when this window has become the one before, and slides out.
      room, sliding, ends = limit - cost, used, ends + period
    end
    if sliding < 1 then sliding = 1 end
    local grains = (period - period % grain) / grain
    if grains < 1 then grains = 1 end
    local overlap = room * grains
    overlap = (overlap - overlap % sliding) / sliding
    retry = (overlap >= grains and ends - period or ends - overlap * grain) - now
    if retry < 0 then retry = 0 end
  end
  if fits then return -1, left, reset, state, reset, foreign, keeps, retry end
  if repair then
    return retry, left, reset, pack('<BddI4dI4I4', 19, period, limit, grain, window, previous, used), reset, foreign
  end
  return retry, left, reset
end
