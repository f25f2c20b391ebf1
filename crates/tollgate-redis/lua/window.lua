-- Windows that count, as in `algorithm/window.rs` of tollgate-core: fixed (18), and sliding, of two weighted counters (19). A fixed
-- window is one whose previous window weighs nothing.
--
-- Quota: period in µs, limit, and of a sliding window the resolution in µs: the overlap with the previous window is a multiple of it.
-- State: the number of the window, of a sliding one the units of the previous window, and the units taken in it (16 bytes). A state
-- with 0 units is a fresh one. Where units are owed its first byte is 8 more: those beyond the limit begin the next windows.
--
-- `calendar.lua` has the windows of a calendar, and what a durable rule begins with. A quota tells which of the two it is by its third
-- number, so that no function has to keep the algorithm: each value that a function keeps costs each call.

-- ⌈previous · overlap / period⌉: the previous window weighs in proportion to its overlap with the sliding window.
local function weighted(previous, ends, now, period, resolution)
  local steps = (period - period % resolution) / resolution
  if steps < 1 then steps = 1 end
  local overlap = ends - now
  overlap = overlap + (-overlap) % resolution
  overlap = overlap / resolution
  -- Before a window of the future the previous one counts whole.
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
  return function(key, last, period, limit, third, now, cost, by_server, margin, out, n)
    local slides, keys, current, ends = third > 0 and period < 2^52, KEYS
    if period < 2^52 then
      current = (now - now % period) / period
      ends = (current + 1) * period
    else
      local at_window, is_outside = step_of('calendar')
      if is_outside(period, third, now) then return key end
      current, ends = at_window(period, third, now)
    end
    local reset = ends - now
    if slides then reset = reset + period end
    local ttl = reset + 999
    ttl = format('%d', (ttl - ttl % 1000) / 1000 + margin)
    for key = key, last do
      local name = keys[key]
      local raw, previous, used, done = try('GET', name), 0, 0
      if raw then
        if #raw ~= 37 then return key, raw end
        local kind, period0, limit0, third0, window0, previous0, used0 = unpack(slides and '<BddI4dI4I4' or '<BddI4dd', raw)
        if not slides then
          if window0 == current then used = previous0 elseif period >= 2^52 and window0 > now then kind = 0 end
        elseif window0 == current then
          previous, used = previous0, used0
        elseif window0 + 1 == current then
          previous = used0
        end
        if kind ~= (slides and 19 or 18) or period0 ~= period or limit0 ~= limit or slides and third0 ~= third
          or not (window0 >= 0 and window0 <= current and used >= 0) then return key, raw end
      elseif durable then
        return key, raw
      end
      local left = limit - used - cost
      if left > 0 and previous > 0 then left = left - weighted(previous, ends, now, period, third) end
      -- If as many do not fit again, it takes longer to say when a sliding window has them.
      if left < 0 or slides and left < cost then return key, raw end
      if used > 0 and by_server then
        if slides then done = try('SETRANGE', name, '33', pack('<I4', used + cost))
        else done = try('SETRANGE', name, '29', pack('<d', used + cost)) end
      else
        used = used + cost
        local state = slides and pack('<BddI4dI4I4', 19, period, limit, third, current, previous, used)
          or pack('<BddI4dd', 18, period, limit, third, current, used)
        done = try('SET', name, state, 'PX', ttl)
      end
      -- SETRANGE returns the length.
      if done ~= 37 and done.err then return key, raw end
      out[n + 1], out[n + 2], out[n + 3] = left < cost and -4 - reset or -1, left, reset
      n = n + 3
    end
    return last + 1
  end
end

if purpose == 'refund' then
  return function(raw, period, _, third, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local slides = third > 0 and period < 2^52
    local kind, period0, limit0, third0, window, previous, used = unpack(slides and '<BddI4dI4I4' or '<BddI4dd', raw)
    if not slides then previous, used = 0, previous end
    local is_owed = kind == (slides and 27 or 26)
    if not is_owed and kind ~= (slides and 19 or 18) or not (window >= 0 and window <= 2^53 and used >= 0 and used <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    local at_window, _, is_same = step_of('calendar')
    local ends, same = period0 < 2^52 and (window + 1) * period0 or window, is_same(period0, period)
    -- How many windows ago they were taken.
    local age
    if same then
      -- A refund does not give units of a window that is gone back to a later one.
      age = slides and (ends - fresh_at) / period + 1 or ends - fresh_at
    else
      -- The weight of the units under their own quota, which decreases in a sliding window once theirs is the previous one.
      local weighs = fresh_at - now
      if weighs <= 0 then return -1 end
      if slides and weighs < period then cost = muldiv(cost, weighs, period) end
      -- The conversion carried them into the window in which they were taken, or a later one.
      age = window - at_window(period0, third0, at)
    end
    if age == 1 and slides then
      local rest = cost > previous and not same and cost - previous or 0
      previous, cost = cost < previous and previous - cost or 0, rest
    elseif age ~= 0 then
      return -1
    end
    used = cost < used and used - cost or 0
    if used + previous == 0 then return -1, '', 0 end
    local ttl, length = ends - now, period0 < 2^52 and period0 or (third0 - third0 % 65536) / 65536 * 900000000
    if used > 0 and slides then ttl = ttl + period0 end
    if is_owed and used > limit0 then ttl = ttl + (used - 1 - (used - 1) % limit0) / limit0 * length end
    -- The next windows of a calendar may be longer.
    if is_owed and period0 >= 2^52 then ttl = ttl * 1.125 end
    return -1, sub(raw, 1, 29) .. (slides and pack('<I4I4', previous, used) or pack('<d', used)), ttl
  end
end

return function(raw, period, limit, third, now, cost, by_writer)
  local slides, at_window, is_outside, is_same, windows_between, base_of, length_of, current = third > 0 and period < 2^52
  if period < 2^52 and not durable then
    current = (now - now % period) / period
  else
    at_window, is_outside, is_same, windows_between, base_of, length_of = step_of('calendar')
    -- As the quota that wrote a state: the caller knows the windows of its time.
    local own, own_lengths = unpack('<d', check, 15), unpack('<I4', check, 31)
    if period >= 2^52 and is_same(own, period) then period, third = own, own_lengths end
    if period >= 2^52 and own >= 2^52 and not by_writer and is_outside(own, own_lengths, now) then return -3, 7, 0 end
    current = at_window(period, third, now)
  end
  local window, previous, used, foreign, leaves = current, 0, 0, false, false
  -- Whether units are owed, and how many by the quota that says so. And whether a denial writes the state.
  local owes, over, repair, is_over = false, 0, false, false
  if not raw and durable then
    local why
    used, why, owes = base_of(period, third, now)
    if why then return -3, why, 0 end
    over, repair = owes and used - limit or 0, used > 0
  end
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local kind, period0, limit0, third0
    kind, period0, limit0, third0, window, previous, used = unpack(slides and '<BddI4dI4I4' or '<BddI4dd', raw)
    if not slides then previous, used = 0, previous end
    owes = kind == (slides and 27 or 26)
    if not owes and kind ~= (slides and 19 or 18) or not (window >= 0 and window <= 2^53 and used >= 0 and used <= 2^53) then return -3, 0, 0 end
    if period0 >= 2^52 and not at_window then at_window, is_outside, is_same, windows_between, base_of, length_of = step_of('calendar') end
    local same, this = period0 == period or at_window and is_same(period0, period), current
    foreign = not same or limit0 ~= limit or slides and third0 ~= third
    if owes or foreign then
      if not (period0 >= 1 and period0 <= 2^53 and limit0 >= 1 and limit0 <= 2^53) then return -3, 0, 0 end
      if slides and not (third0 >= 1 and third0 <= period0 and limit0 < 2^32) then return -3, 0, 0 end
      if not same then this = period0 < 2^52 and (now - now % period0) / period0 or at_window(period0, third0, now) end
    end
    -- The state as of now. A future window counts, so that a clock that goes back never refills.
    if window > this then
      if used + previous == 0 then window = this end
    elseif window < this then
      -- Where the end of a calendar's is to come, the caller has another database: it is not over there.
      if owes and (period0 < 2^52 or window <= now) then
        -- What is owed begins the present window, as the quota that wrote the state has it.
        local turns = this - window
        if period0 >= 2^52 then turns = windows_between(same and third or third0, window, this) end
        used = used - (turns - 1) * limit0
        previous = used > limit0 and limit0 or used > 0 and used or 0
        used = used > limit0 and used - limit0 or 0
      elseif period0 < 2^52 or window <= now then
        previous, used, is_over = window + 1 == this and used or 0, 0, same
      end
      if not slides then previous = 0 end
      window = this
    end
    local tells = cost == 0 and (owes or slides and role ~= 2)
    leaves = foreign
    if tells or not same then
      local weighs = used
      if previous > 0 then weighs = used + weighted(previous, (window + 1) * period0, now, period0, third0) end
      -- Also where the window before weighs more because time has gone back.
      if tells then over = weighs - limit0 end
      if not same then
        -- In windows of another length, units that count now count as if just taken. Where time has gone back the window before
        -- weighs more, but what is beyond the limit is only what is owed.
        if slides then
          local most = used > limit0 and 2^32 - 1 or limit0
          if weighs > most then weighs = most end
        end
        window, previous, used = current, 0, weighs
        -- A denial leaves it so, but not where these windows are shorter. Where units may be owed, those beyond this limit would be.
        if length_of then leaves = length_of(period0, third0, 2) <= length_of(period, third, 2) else leaves = period0 <= period end
        leaves = leaves or may_owe and used > limit
      end
    end
    -- A threshold that leaves a denial to the quota that wrote the state sees what it owes.
    owes = owes and (role ~= 2 or by_writer or cost > 0 and not foreign)
    repair = foreign
  end

  local ends = period < 2^52 and (window + 1) * period or window
  local left = limit - used
  if left > 0 and previous > 0 then left = left - weighted(previous, ends, now, period, third) end
  if left < 0 then left = 0 end
  local fits, keeps, reset, state = cost <= left, used > 0 and not repair and not owes, 0
  if fits then
    used = used + cost
    -- Limits are below 2^32; only a report takes more.
    if slides and used >= 2^32 then used = 2^32 - 1 end
  elseif window > current then
    -- Repair to the next window, not to the present one: a clock that goes back over a boundary would otherwise free the window it
    -- has just left. At its start both counters weigh what they weigh now.
    local following, its_end = current + 1, (current + 2) * period
    if period >= 2^52 then following, its_end = at_window(period, third, current) end
    if window > following then window, repair, ends = following, true, its_end end
  end
  -- What is owed goes into the next windows.
  local length = period < 2^52 and period or (third - third % 65536) / 65536 * 900000000
  if used > 0 then
    reset = ends - now
    if slides then reset = reset + period end
    if owes and used > limit then reset = reset + (used - 1 - (used - 1) % limit) / limit * length end
  elseif previous > 0 then
    reset = ends - now
  end
  if fits then
    if over > 0 and left == 0 then left = -2^52 - over end
    if cost == 0 then return -1, left, reset end
    state = slides and pack('<BddI4dI4I4', 19, period, limit, third, window, previous, used)
      or pack('<BddI4dd', 18, period, limit, third, window, used)
    left = left - cost
    if left >= cost then return -1, left, reset, state, reset, foreign, keeps end
  end
  -- When the units fit, or fit again.
  local retry = -2
  if cost <= limit then
    local beyond, units = used + cost - limit, previous
    if beyond > 0 then
      -- Units become free only once this window is over, and slides out.
      local turns = owes and (beyond - 1 - (beyond - 1) % limit) / limit or 0
      ends, beyond, units = ends + turns * length, beyond - turns * limit, used - turns * limit
      if slides then
        -- What is beyond the limit by then comes with it into the next windows.
        ends = ends + period
        if owes and units > limit then units = limit end
        beyond = beyond - units
      end
    end
    retry = ends - now
    if slides then
      local steps = (period - period % third) / third
      if steps < 1 then steps = 1 end
      local overlap = -beyond * steps
      retry = retry - (overlap - overlap % units) / units * third
    end
  end
  if fits then return -1, left, reset, state, reset, foreign, keeps, retry end
  if not repair then return retry, left, reset end
  if used == 0 and not slides then
    -- A window that is over by this clock stays for callers whose clocks are behind.
    return retry, left, reset, is_over and pack('<BddI4', 18, period, limit, third) .. sub(raw, 22) or '', 0, leaves
  end
  local kind, ttl = slides and 19 or 18, reset
  if owes and used > limit then
    kind = kind + 8
    if period >= 2^52 then ttl = reset * 1.125 end
  end
  state = slides and pack('<BddI4dI4I4', kind, period, limit, third, window, previous, used)
    or pack('<BddI4dd', kind, period, limit, third, window, used)
  return retry, left, reset, state, ttl, leaves
end
