-- GCRA, token bucket and leaky bucket: the theoretical arrival time, as in `algorithm/gcra.rs` of tollgate-core.
--
-- Quota: n, burst, d. One unit takes n/d µs, in lowest terms. A span of time is a mixed number: whole µs and a
-- remainder over d. State: the arrival time and its remainder (12 bytes). Quota validation keeps every product below
-- 2^53; `muldiv` computes the larger ones.
--
-- A bucket with leases or an overdraft stores 16 bytes more, as `BucketGrantor` of tollgate-prefilter does: the number
-- of a lease generation, the units granted in it, the units granted in the generation before, and the overdraft (units
-- used beyond the burst, a 32-bit float that is rounded up). Units on lease are not available to others.

if purpose == 'refund' then
  return function(raw, n, burst, d, now, cost, at, fresh_at)
    if #raw ~= 33 and #raw ~= 49 then return -3 end
    local alg, n0, burst0, d0, tat, rest = unpack('<BddI4dI4', raw)
    if alg ~= 17 or not (tat >= 0 and tat <= 2^53) then return -3 end
    if not (n0 >= 1 and n0 < 2^50 and burst0 >= 1 and burst0 < 2^50 and d0 >= 1) then return -3 end
    if cost > burst then cost = burst end
    local part = cost * (n % d)
    local units_rest = part % d
    local units = cost * ((n - n % d) / d) + (part - units_rest) / d
    -- The units weigh until `at` + their time. `fresh_at` is that time rounded up to a whole µs.
    local till, till_rest = at + units, units_rest
    if till >= fresh_at then till, till_rest = fresh_at, 0 end
    if d > 1 then
      if till < fresh_at - 1 or (till == fresh_at - 1 and till_rest < 1) then
        till, till_rest = fresh_at - 1, 1
      end
    else
      till, till_rest = fresh_at, 0
    end
    local ahead = tat - now
    if ahead < 0 then ahead, rest = 0, 0 end
    local back, back_rest
    if n0 == n and burst0 == burst and d0 == d then
      -- Give back what the units still weigh, at most their full time.
      back, back_rest = till - now, till_rest
      if back < 0 then back, back_rest = 0, 0 end
      if back > units or (back == units and back_rest > units_rest) then back, back_rest = units, units_rest end
    else
      -- The state was converted to another quota since: count from `at` at the faster of the two rates, and give back
      -- at most the full time of the units. muldiv(n0, d, d0) < n exactly if n0/d0 < n/d.
      local since = at < now and now - at or 0
      local whole, over = muldiv(n0, d, d0)
      local is_faster = whole < n
      back, back_rest = till - (is_faster and at or now), till_rest
      if back < 0 then back, back_rest = 0, 0 end
      part = burst * (n % d)
      local most_rest = part % d
      local most = burst * ((n - n % d) / d) + (part - most_rest) / d
      if back > most or (back == most and back_rest > most_rest) then back, back_rest = most, most_rest end
      local count
      count, part = muldiv(back, d, n)
      part = part + back_rest
      count, part = count + (part - part % n) / n, part % n
      -- The bucket may have been full when it was converted. The conversion then dropped the units beyond the new
      -- burst.
      local unit_rest = n0 % d0
      local unit = (n0 - unit_rest) / d0
      local full_rest = burst0 * unit_rest % d0
      local full = burst0 * unit + (burst0 * unit_rest - full_rest) / d0
      local level = ahead + since
      local forgotten = 0
      if burst > burst0 and (level > full or (level == full and rest >= full_rest)) then forgotten = burst - burst0 end
      if not is_faster then
        if count >= cost then count, part = cost, 0 end
        count = count - forgotten
        if count >= burst0 then count, part = burst0, 0 end
        if count < 0 then count, part = 0, 0 end
      end
      whole = muldiv(part, n0, n)
      over = count * unit_rest
      back, back_rest = count * unit + (over - over % d0) / d0, over % d0 + whole % d0
      back = back + (whole - whole % d0) / d0
      if back_rest >= d0 then back, back_rest = back + 1, back_rest - d0 end
      if is_faster then
        back = back - since
        over = cost * unit_rest
        whole, over = cost * unit + (over - over % d0) / d0, over % d0
        if back > whole or (back == whole and back_rest > over) then back, back_rest = whole, over end
        over = forgotten * unit_rest
        back, back_rest = back - forgotten * unit - (over - over % d0) / d0, back_rest - over % d0
        if back_rest < 0 then back, back_rest = back - 1, back_rest + d0 end
        if back < 0 then back, back_rest = 0, 0 end
      end
    end
    ahead, rest = ahead - back, rest - back_rest
    if rest < 0 then ahead, rest = ahead - 1, rest + d0 end
    if ahead < 0 then ahead, rest = 0, 0 end
    local ttl = rest > 0 and ahead + 1 or ahead
    local state = sub(raw, 1, 21) .. pack('<dI4', now + ahead, rest)
    if #raw == 33 then return -1, state, ttl end
    -- Keep the state until the leases have expired and the bucket has refilled after that.
    local generation, current, previous = unpack('<I4I4I4', raw, 34)
    local last = (generation + 2) * LIFE - now + (current + previous) * (n0 / d0)
    if current + previous > 0 and ttl < last then ttl = last + (-last) % 1 end
    return -1, state .. sub(raw, 34), ttl
  end
end

if purpose == 'take' then
  return function(key, last, n, burst, d, now, cost, _, margin, out, place)
    if cost > burst then return key end
    local keys = KEYS
    -- The interval, the tolerance, and the time that the units take, as mixed numbers.
    local unit, unit_rest, most, most_rest, time, part = n, 0, burst * n, 0, cost * n, 0
    if d > 1 then
      unit_rest = n % d
      unit = (n - unit_rest) / d
      most_rest, part = burst * unit_rest, cost * unit_rest
      most, time = burst * unit, cost * unit
      most, most_rest = most + (most_rest - most_rest % d) / d, most_rest % d
      time, part = time + (part - part % d) / d, part % d
    end
    -- The latest arrival time at which they fit.
    local latest, latest_rest = most - time, most_rest - part
    if latest_rest < 0 then latest, latest_rest = latest - 1, latest_rest + d end
    for key = key, last do
      local name = keys[key]
      local raw, ahead, rest = try('GET', name), 0, 0
      if raw then
        if #raw ~= 33 then return key, raw end
        local alg, n0, burst0, d0, tat, rest0 = unpack('<BddI4dI4', raw)
        if alg ~= 17 or n0 ~= n or burst0 ~= burst or d0 ~= d or not (tat >= 0) then return key, raw end
        if tat >= now then ahead, rest = tat - now, rest0 end
        if ahead > latest or (ahead == latest and rest > latest_rest) then return key, raw end
      end
      ahead, rest = ahead + time, rest + part
      if rest >= d then ahead, rest = ahead + 1, rest - d end
      local have = (most - ahead) * d + most_rest - rest
      if have >= 2^53 then return key, raw end
      local reset = rest > 0 and ahead + 1 or ahead
      local ttl = reset + 999
      ttl = format('%d', (ttl - ttl % 1000) / 1000 + margin)
      if try('SET', name, pack('<BddI4dI4', 17, n, burst, d, now + ahead, rest), 'PX', ttl).err then return key, raw end
      local retry = -1
      if ahead > latest or (ahead == latest and rest > latest_rest) then
        retry = latest - ahead - (rest > latest_rest and 5 or 4)
      end
      out[place + 1], out[place + 2], out[place + 3] = retry, (have - have % n) / n, reset
      place = place + 3
    end
    return last + 1
  end
end

local function arrive(raw, n, burst, d, now, cost, doing, check, granted, forgotten)
  -- The interval and the tolerance as mixed numbers.
  local unit, unit_rest, most, most_rest = n, 0, burst * n, 0
  if d > 1 then
    unit_rest = n % d
    unit = (n - unit_rest) / d
    local part = burst * unit_rest
    most_rest = part % d
    most = burst * unit + (part - most_rest) / d
  end

  -- The time from now to the arrival time.
  local ahead, rest = 0, 0
  -- If another quota wrote the state: its interval, and whether its usage exceeds this burst.
  local n0, d0, cut
  -- The units on lease, and the overdraft.
  local generation, current, previous, overdraft
  if raw then
    if #raw ~= 33 then
      if #raw ~= 49 then return -3, 0, 0 end
      generation, current, previous, overdraft = unpack('<I4I4I4f', raw, 34)
    end
    local alg, number, burst0, third, tat, part = unpack('<BddI4dI4', raw)
    if alg ~= 17 or not (tat >= 0 and tat <= 2^53) then return -3, 0, 0 end
    if tat >= now then ahead, rest = tat - now, part end
    if number ~= n or burst0 ~= burst or third ~= d then
      n0, d0 = number, third
      if not (n0 >= 1 and n0 < 2^50 and burst0 >= 1 and burst0 < 2^50 and d0 >= 1) then return -3, 0, 0 end
      if doing == 6 then
        -- Return the lease under the quota that wrote the state, which kept the units on lease. If its burst is smaller
        -- and the bucket was full since the grant, the conversion dropped the units beyond that burst.
        local _, granted_in = unpack('<dd', check, 39)
        local beyond = 0
        if burst > burst0 and tat - granted_in * LIFE >= burst0 * (n0 / d0) - 1 then beyond = burst - burst0 end
        return arrive(raw, n0, burst0, d0, now, cost, doing, check, granted, beyond)
      end
      -- Used units stay used: units + part/n0, at most the burst of the quota that wrote the state.
      part = burst0 * (n0 % d0)
      local most0_rest = part % d0
      local most0 = burst0 * ((n0 - n0 % d0) / d0) + (part - most0_rest) / d0
      -- The overdraft stays as well: those units were admitted, or a scheduled lease may still spend them.
      local owed = 0
      if ahead > most0 or (ahead == most0 and rest > most0_rest) then ahead, rest, owed = most0, most0_rest, overdraft or 0 end
      local units
      units, part = muldiv(ahead, d0, n0)
      part = part + rest
      units, part = units + (part - part % n0) / n0, part % n0
      if units >= burst then
        ahead, rest, cut = most, most_rest, units > burst or part > 0
        if cut and doing == 5 then
          -- Debit under the quota that wrote the state: cut to this burst, it would give away what was used.
          local _, _, reset, state, ttl = arrive(raw, n0, burst0, d0, now, cost, doing, check)
          return -1, 0, reset, state, ttl
        end
      else
        local more, left = muldiv(part, n, n0)
        if left > 0 then more = more + 1 end
        part = units * unit_rest
        ahead, rest = units * unit + (part - part % d) / d, part % d
        rest = rest + more % d
        ahead = ahead + (more - more % d) / d
        if rest >= d then ahead, rest = ahead + 1, rest - d end
      end
      if owed > 0 then
        part = rest + owed * unit_rest
        ahead, rest = ahead + owed * unit + (part - part % d) / d, part % d
      end
    end
  end

  if generation and current + previous > 0 then
    local this = (now - now % LIFE) / LIFE
    -- The clock went back by a lot. No lease lives longer than LIFE from now.
    if generation > this + 3 then generation, current, previous = this, current + previous, 0 end
    for _ = 1, 2 do
      -- Until the generation ends, none of its units may have been spent yet.
      local till = (generation + 1) * LIFE
      local out = current + previous
      if out > burst then out = burst end
      local part = out * unit_rest
      local held, over = (till < now and till or now) - now + out * unit + (part - part % d) / d, part % d
      if held > ahead or (held == ahead and over > rest) then ahead, rest = held, over end
      if now < till then break end
      generation, current, previous = generation + 1, 0, current
    end
  end

  -- An arrival time beyond the burst comes from a clock that went back or a burst that was lowered. A denial repairs
  -- it, but keeps the overdraft.
  local repair, leaves = n0, false
  if ahead > most or (ahead == most and rest > most_rest) then
    local top, top_rest = most, most_rest
    if overdraft and overdraft > 0 then
      local part = most_rest + overdraft * unit_rest
      top, top_rest = most + overdraft * unit + (part - part % d) / d, part % d
    end
    if ahead > top or (ahead == top and rest > top_rest) then ahead, rest, repair = top, top_rest, true end
  end

  local wanted = cost
  if doing then
    cost = 0
    local back = 0
    if doing == 4 then
      -- A reset drops the usage. Leases stay: their units may still be spent.
      back = current + previous
      if back == 0 then return -1, 0, 0, '', 0 end
      if back > burst then back = burst end
      ahead, rest, overdraft = 0, 0, 0
    elseif doing == 6 then
      local left, granted_in = unpack('<dd', check, 39)
      local out = generation and (generation == granted_in and current or generation == granted_in + 1 and previous) or 0
      -- The bucket no longer knows this lease, and has to count it as spent.
      if out < wanted or wanted < left then return -1, 0, 0 end
      if generation == granted_in then current = current - wanted else previous = previous - wanted end
      if forgotten then left = left > forgotten and left - forgotten or 0 end
      back = -left
    elseif doing == 5 then
      back = wanted
    end
    -- Give units back, or take them whether they fit or not.
    local part = back * unit_rest
    ahead, rest = ahead + back * unit + (part - part % d) / d, rest + part % d
    if rest >= d then ahead, rest = ahead + 1, rest - d end
    if ahead < 0 then ahead, rest = 0, 0 end
    if doing == 5 and (ahead > most or (ahead == most and rest > most_rest)) then
      generation, current, previous = generation or 0, current or 0, previous or 0
      overdraft = 1
      -- Cap the overdraft at about 140 years, where doubles are still exact.
      if ahead > 2^52 then ahead, rest = 2^52, 0 end
    end
  end

  local retry, again = -1, nil
  if cost > burst then
    retry = -2
  elseif cost > 0 then
    local time, part = cost * unit, 0
    if d > 1 then
      part = cost * unit_rest
      time, part = time + (part - part % d) / d, part % d
    end
    local whole, over = ahead + time, rest + part
    if over >= d then whole, over = whole + 1, over - d end
    local fits = whole < most or (whole == most and over <= most_rest)
    if fits then
      ahead, rest, repair = whole, over, true
      -- When would the same units fit again?
      whole, over = whole + time, over + part
      if over >= d then whole, over = whole + 1, over - d end
    end
    if whole > most or (whole == most and over > most_rest) then
      local wait = whole - most
      if over > most_rest then wait = wait + 1 end
      if generation and current + previous > 0 then
        -- Units on lease are unavailable until their generation ends. Only then do they refill.
        local till, out = (generation + 1) * LIFE - now, current + previous
        for _ = 1, 2 do
          if out > burst then out = burst end
          local more = out + cost - burst
          if more <= 0 and wait < till then break end
          if more > 0 then
            local part = more * unit_rest
            local later = till + more * unit + (part + (-part) % d) / d
            if later > wait then wait = later end
          end
          till, out = till + LIFE, current
        end
      end
      if fits then again = wait else retry = wait end
    end
  end
  if n0 and retry ~= -1 then
    -- Leave the state to its quota, unless all usage fits this burst and refills sooner under this quota:
    -- ⌊n · d0 / d⌋ < n0 exactly if n/d < n0/d0.
    leaves = cut or muldiv(n, d0, d) >= n0
  end

  -- The whole units left: ⌊(left + left_rest / d) · d / n⌋.
  local left, left_rest = most - ahead, most_rest - rest
  if left_rest < 0 then left, left_rest = left - 1, left_rest + d end
  local have = left * d + left_rest
  local remaining = (have - have % n) / n
  if have >= 2^53 then
    -- The division is off by at most one; the comparison below is exact.
    remaining = have / n
    remaining = remaining - remaining % 1
    if remaining > burst then remaining = burst end
    local part = remaining * unit_rest
    local whole, over = remaining * unit + (part - part % d) / d, part % d
    if whole > left or (whole == left and over > left_rest) then
      remaining = remaining - 1
    elseif remaining < burst then
      whole, over = whole + unit, over + unit_rest
      if over >= d then whole, over = whole + 1, over - d end
      if whole < left or (whole == left and over <= left_rest) then remaining = remaining + 1 end
    end
  end

  if remaining < 0 then remaining = 0 end

  local kind, units, after = 0, 0, 0
  if doing == 7 then
    local reserve, largest, horizon, empty = unpack('<dddd', check, 39)
    if not raw or n0 then return 0, 0, 0 end
    generation, current, previous = generation or 0, current or 0, previous or 0
    if granted then units = lease_size(wanted, remaining, reserve - current - previous) end
    if units > 0 then
      local this = (now - now % LIFE) / LIFE
      -- Existing leases are of this generation, or of a later one if the clock went back.
      if generation < this or current + previous == 0 then generation = this end
      kind, current = 1, current + units
    end
    if units == 0 and remaining <= empty and lease_size(2^49, remaining, 2^49) == 0 then
      -- The time until the overdraft has refilled.
      after = ahead - most
      if rest > most_rest then after = after + 1 end
      if after < 0 then after = 0 end
      -- Schedule at most a quarter of the units that refill within the rest of the horizon.
      local part = horizon - after
      if part > 0 then
        part = (part - part % 4) / 4 * d
        units = (part - part % n) / n
        if largest < units then units = largest end
        if units > 0 then kind, overdraft = 2, 1 end
      end
    end
    if units == 0 then return 0, 0, 0 end
    local part = units * unit_rest
    ahead, rest = ahead + units * unit + (part - part % d) / d, rest + part % d
    if rest >= d then ahead, rest = ahead + 1, rest - d end
  end

  local reset = ahead
  if rest > 0 then reset = reset + 1 end
  if generation and (doing or (cost > 0 and repair)) then
    -- The overdraft in units, rounded up.
    if overdraft and overdraft > 0 then
      overdraft = 0
      if ahead > most or (ahead == most and rest > most_rest) then
        local more, more_rest = ahead - most, rest - most_rest
        if more_rest < 0 then more, more_rest = more - 1, more_rest + d end
        local whole, part = muldiv(more, d, n)
        part = part + more_rest
        overdraft = whole + (part + (-part) % n) / n
        -- A 32-bit float has 24 bits: round up.
        if overdraft >= 2^24 then overdraft = overdraft + overdraft / 2^23 end
      end
    else
      overdraft = 0
    end
    local state, ttl = pack('<BddI4dI4', 17, n, burst, d, now + ahead, rest), reset
    if current + previous > 0 or overdraft > 0 then
      state = state .. pack('<I4I4I4f', generation, current, previous, overdraft)
    end
    local leased = current + previous
    if leased > 0 and not doing and retry == -1 then
      -- Report the reset time without the leases, which expire on their own: with them, a refund would give back units
      -- that have refilled already.
      local part = leased * unit_rest
      local whole, over = ahead - leased * unit - (part - part % d) / d, rest - part % d
      if over < 0 then whole, over = whole - 1, over + d end
      reset = whole < 0 and 0 or over > 0 and whole + 1 or whole
    end
    -- Keep the state until the leases have expired and the bucket has refilled after that.
    local till, out = (generation + 1) * LIFE - now, leased
    while out > 0 do
      local part = out * unit_rest
      local last = till + out * unit + (part + (-part) % d) / d
      if last > ttl then ttl = last end
      till, out, current = till + LIFE, current, 0
    end
    if doing == 7 then return kind, units, kind == 1 and generation or after, state, ttl end
    return retry, remaining, reset, state, ttl, leaves, nil, again
  end
  if doing == 5 or doing == 6 then
    return retry, remaining, reset, pack('<BddI4dI4', 17, n, burst, d, now + ahead, rest), reset
  end
  if cost > 0 and repair then
    return retry, remaining, reset, pack('<BddI4dI4', 17, n, burst, d, now + ahead, rest), reset, leaves, nil, again
  end
  return retry, remaining, reset
end

return arrive
