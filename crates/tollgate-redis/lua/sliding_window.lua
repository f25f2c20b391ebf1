-- Sliding window of two weighted counters, as in `algorithm/sliding_window.rs` of tollgate-core.
--
-- Quota: period in µs, limit, and the resolution in µs: the overlap with the previous window is a multiple of it.
-- State: the number of the window, the units of the previous window, the units of this one (16 bytes). Where units are owed its
-- first byte is 27: those of this window beyond the limit begin the next windows.

if purpose == 'refund' then
  return function(raw, period, _, _, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local alg, period0, limit0, _, window, previous, used = unpack('<BddI4dI4I4', raw)
    if alg ~= 19 and alg ~= 27 or not (window >= 0 and window <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    local ends = (window + 1) * period0
    if period0 ~= period then
      -- The weight of the units under their own quota, which decreases once their window is the previous one.
      local weighs = fresh_at - now
      if weighs <= 0 then return -1 end
      if weighs < period then cost = muldiv(cost, weighs, period) end
      -- The conversion carried them into the window in which they were taken, or a later one.
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
    -- Units expire one period after the end of the window in which they were taken.
    elseif fresh_at == ends + period then
      used = cost < used and used - cost or 0
    elseif fresh_at == ends then
      previous = cost < previous and previous - cost or 0
    else
      return -1
    end
    local ttl = used > 0 and ends + period0 - now or previous > 0 and ends - now or 0
    if alg == 27 and used > limit0 then ttl = ttl + (used - 1 - (used - 1) % limit0) / limit0 * period0 end
    return -1, sub(raw, 1, 29) .. pack('<I4I4', previous, used), ttl
  end
end

-- ⌈previous · overlap / period⌉: the previous window weighs in proportion to its overlap with the sliding window.
local function weighted(previous, ends, at, period, resolution)
  local steps = (period - period % resolution) / resolution
  if steps < 1 then steps = 1 end
  local overlap = ends - at
  overlap = overlap + (-overlap) % resolution
  overlap = overlap / resolution
  if overlap > steps then overlap = steps end
  local product = previous * overlap
  if product >= 2^53 then
    -- These units were counted under a much larger limit.
    local whole, part = muldiv(previous, overlap, steps)
    return part > 0 and whole + 1 or whole
  end
  local part = product % steps
  return part > 0 and (product - part) / steps + 1 or product / steps
end

if purpose == 'take' then
  return function(key, last, period, limit, resolution, now, cost, by_server, margin, out, n)
    local keys = KEYS
    local current = (now - now % period) / period
    local ends = (current + 1) * period
    local reset = ends + period - now
    local ttl = reset + 999
    ttl = format('%d', (ttl - ttl % 1000) / 1000 + margin)
    for key = key, last do
      local name = keys[key]
      local raw, previous, used, done = try('GET', name), 0, 0
      if raw then
        if #raw ~= 37 then return key, raw end
        local alg, period0, limit0, resolution0, window0, previous0, used0 = unpack('<BddI4dI4I4', raw)
        if alg ~= 19 or period0 ~= period or limit0 ~= limit or resolution0 ~= resolution then return key, raw end
        if window0 == current then
          previous, used = previous0, used0
        elseif window0 + 1 == current then
          previous = used0
        elseif not (window0 >= 0 and window0 < current) then
          return key, raw
        end
      end
      local left = limit - used - cost
      if left > 0 and previous > 0 then left = left - weighted(previous, ends, now, period, resolution) end
      -- If as many do not fit again, it takes longer to say when they do.
      if left < cost then return key, raw end
      if used > 0 and by_server then
        done = try('SETRANGE', name, '33', pack('<I4', used + cost))
      else
        done = try('SET', name, pack('<BddI4dI4I4', 19, period, limit, resolution, current, previous, used + cost), 'PX', ttl)
      end
      -- SETRANGE returns the length.
      if done ~= 37 and done.err then return key, raw end
      out[n + 1], out[n + 2], out[n + 3] = -1, left, reset
      n = n + 3
    end
    return last + 1
  end
end

return function(raw, period, limit, resolution, now, cost, by_writer)
  local current = (now - now % period) / period
  local window, previous, used, at = current, 0, 0, now
  local repair, foreign = false, false
  -- Whether units are owed, and how many by the quota that says so.
  local owes, over = false, 0
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local alg, period0, limit0, resolution0, window0, previous0, used0 = unpack('<BddI4dI4I4', raw)
    local owes0 = alg == 27
    if alg ~= 19 and not owes0 or not (window0 >= 0 and window0 <= 2^53) then return -3, 0, 0 end
    foreign = period0 ~= period or limit0 ~= limit or resolution0 ~= resolution
    local current0 = current
    if foreign then
      if not (period0 <= 2^53 and resolution0 >= 1 and resolution0 <= period0 and limit0 < 2^32) then return -3, 0, 0 end
      if period0 ~= period then current0 = (now - now % period0) / period0 end
    end
    -- The state as of now; a future window as of its start.
    local at0 = now
    if window0 > current0 and previous0 + used0 > 0 then
      at0 = window0 * period0
    elseif owes0 and window0 < current0 then
      used0 = used0 - (current0 - window0 - 1) * limit0
      previous0 = used0 > limit0 and limit0 or used0 > 0 and used0 or 0
      used0 = used0 > limit0 and used0 - limit0 or 0
      window0 = current0
    elseif window0 ~= current0 then
      previous0 = window0 + 1 == current0 and used0 or 0
      used0, window0 = 0, current0
    end
    if owes0 then
      -- A threshold that leaves a denial to the quota that wrote the state sees what it owes.
      owes = role ~= 2 or by_writer or cost > 0 and not foreign
    end
    -- Also where the window before weighs more because time has gone back.
    if cost == 0 and (owes0 or role ~= 2) then
      over = used0 + weighted(previous0, (window0 + 1) * period0, at0, period0, resolution0) - limit0
    end
    if period0 ~= period then
      -- Windows of another length: units that count now count in the new window as if just taken. Where time has gone back the window
      -- before weighs more, but what is beyond the limit is only what is owed.
      local most = used0 > limit0 and 2^32 - 1 or limit0
      used0 = used0 + weighted(previous0, (window0 + 1) * period0, at0, period0, resolution0)
      if used0 > most then used0 = most end
      previous0, window0, at0 = 0, current, now
    end
    window, previous, used, at, repair = window0, previous0, used0, at0, foreign
  end

  local ends = (window + 1) * period
  local left = limit - used
  if left > 0 and previous > 0 then left = left - weighted(previous, ends, at, period, resolution) end
  if left < 0 then left = 0 end
  local fits, keeps, reset, state = cost <= left
  -- For how many periods beyond this window its units weigh.
  local turns = owes and used > 0 and (used - 1 - (used - 1) % limit) / limit + 1 or 1
  if fits then
    keeps = used > 0 and not foreign and not owes
    used = used + cost
    -- Limits are below 2^32; only a report takes more.
    if used >= 2^32 then used = 2^32 - 1 end
    reset = used > 0 and ends + turns * period - now or previous > 0 and ends - now or 0
    if over > 0 and left == 0 then left = -2^52 - over end
    if cost == 0 then return -1, left, reset end
    state = pack('<BddI4dI4I4', 19, period, limit, resolution, window, previous, used)
    left = left - cost
    if left >= cost then return -1, left, reset, state, reset, foreign, keeps end
  -- Repair a window far in the future to the next one. At its start both counters weigh what they weigh now.
  elseif window > current + 1 then
    window, repair = current + 1, true
    ends, at = (window + 1) * period, window * period
    left = limit - used
    if left > 0 and previous > 0 then left = left - weighted(previous, ends, at, period, resolution) end
    if left < 0 then left = 0 end
  end
  reset = used > 0 and ends + turns * period - now or previous > 0 and ends - now or 0
  -- When the units fit, or fit again.
  local retry = -2
  if cost <= limit then
    local room, sliding = limit - used - cost, previous
    if room < 0 then
      -- Units become free only once this window is the previous one and slides out.
      room, sliding, ends = limit - cost, used, ends + period
      if owes then
        -- What is beyond the limit by then comes with it into the next windows.
        turns = (sliding + cost - 1 - (sliding + cost - 1) % limit) / limit - 1
        sliding, ends = sliding - turns * limit, ends + turns * period
        if sliding > limit then room, sliding = room - sliding + limit, limit end
      end
    end
    if sliding < 1 then sliding = 1 end
    local steps = (period - period % resolution) / resolution
    if steps < 1 then steps = 1 end
    local overlap = room * steps
    overlap = (overlap - overlap % sliding) / sliding
    retry = (overlap >= steps and ends - period or ends - overlap * resolution) - now
    if retry < 0 then retry = 0 end
  end
  if fits then return -1, left, reset, state, reset, foreign, keeps, retry end
  if repair then
    return retry, left, reset, pack('<BddI4dI4I4', owes and 27 or 19, period, limit, resolution, window, previous, used), reset, foreign
  end
  return retry, left, reset
end
