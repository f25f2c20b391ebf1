-- GCRA, token bucket and leaky bucket: the theoretical arrival time, as in `algorithm/gcra.rs` of tollgate-core.
--
-- Quota: n, burst, d. One unit takes n/d µs, in lowest terms. A span of time is a mixed number: whole µs and a
-- remainder over d. State: the arrival time and its remainder (12 bytes). Quota validation keeps every product below
-- 2^53; `muldiv` computes the larger ones.
--
-- A bucket with leases or an overdraft stores 16 bytes more, as `BucketGrantor` in `tests/reference` does: the number
-- of a lease generation, the units granted in it, the units granted in the generation before, and the overdraft (units
-- used beyond the burst, a 32-bit float that is rounded up). Units on lease are not available to others. Of a rule with debt the
-- overdraft is what it may owe at most, from a charge until the next take.
--
-- As algorithm 16 it is that of a rule whose requests wait. Its state has 12 bytes more: for how long requests wait at
-- most, in µs, and before when units were taken that lapse, in steps of 2^20 µs (`cut` in `gcra_state.rs`). The arrival
-- time may lie beyond the burst by that wait: a queue. A denial never cuts a queue.

if purpose == 'take' then
  return function(key, last, n, burst, d, now, cost, _, margin, out, place)
    if cost > burst then return key end
    local keys, size, queue = KEYS, 33, nil
    if alg == 16 then size, queue = 45, sub(check, 51, 58) .. '\0\0\0\0' end
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
        if #raw ~= size or queue and sub(raw, 34) ~= queue then return key, raw end
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
      local state = pack('<BddI4dI4', 17, n, burst, d, now + ahead, rest)
      if queue then state = state .. queue end
      if try('SET', name, state, 'PX', ttl).err then return key, raw end
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

-- A mixed number and the time of so many units, below 0 of those that are taken off.
local function plus(whole, rest, units, unit, unit_rest, d)
  local part = units * unit_rest
  whole, rest = whole + units * unit + (part - part % d) / d, rest + part % d
  if rest >= d then return whole + 1, rest - d end
  return whole, rest
end

-- The whole units in a mixed number, rounded down, also below 0.
local function whole_units(whole, over, n, d)
  if over < 0 then whole, over = whole - 1, over + d end
  local below = whole < 0
  if below and over > 0 then whole, over = -whole - 1, d - over elseif below then whole = -whole end
  local units, part = muldiv(whole, d, n)
  part = part + over
  if below then return -units - (part + (-part) % n) / n end
  return units + (part - part % n) / n
end

-- `doing` is the operation from 4 on, or 3 for a charge of a rule that may owe `granted` units. 8 takes units that are used from `forgotten` µs after now on, of a rule whose requests
-- wait for `granted` µs at most; it returns the state before. 9 decides as the quota that wrote the state.
local function arrive(raw, n, burst, d, now, cost, doing, granted, forgotten)
  -- The interval and the tolerance as mixed numbers.
  local unit, unit_rest, most, most_rest = n, 0, burst * n, 0
  if d > 1 then
    unit, unit_rest = (n - n % d) / d, n % d
    most, most_rest = plus(0, 0, burst, unit, unit_rest, d)
  end

  -- The time from now to the arrival time.
  local ahead, rest = 0, 0
  -- If another quota wrote the state: its interval, and whether its usage exceeds this burst.
  local n0, d0, cut
  -- By how much the queue of that quota is longer than requests wait here, where a denial leaves it so.
  local longer, longer_rest = 0, 0
  -- The units on lease, and the overdraft; the units that are owed, and those of a charge that lapse.
  local generation, current, previous, overdraft, debt, lapsed
  -- For how long requests wait at most; the arrival time of the state; units that were taken until `cut_at` lapse, and those
  -- of before step `cut_step`.
  local at_most, before, before_rest, cut_at, cut_step = nil, 0, 0, nil, nil
  local by_writer = doing == 9
  if by_writer then
    doing = nil
  elseif alg == 16 then
    at_most = doing == 8 and granted or unpack('<d', check, 51)
  end
  if raw then
    local wait0, is_same = nil, true
    if #raw ~= 33 then
      if #raw == 45 then
        wait0, cut_step = unpack('<dI4', raw, 34)
        if not (wait0 >= 0 and wait0 <= 2^52) then return -3, 0, 0 end
        -- It has no leases to return.
        if doing == 6 then return -1, 0, 0 end
        if wait0 == 0 then wait0 = nil end
      elseif #raw == 49 then
        generation, current, previous, overdraft = unpack('<I4I4I4f', raw, 34)
        -- Leases from before the requests of the rule waited: until they have ended, requests are denied at once.
        at_most = nil
      else
        return -3, 0, 0
      end
    end
    local alg, number, burst0, third, tat, part = unpack('<BddI4dI4', raw)
    if alg ~= 17 or not (tat >= 0 and tat <= 2^53) then return -3, 0, 0 end
    if tat >= now then ahead, rest = tat - now, part end
    before, before_rest = tat, part
    if by_writer then
      at_most = wait0
    elseif role == 2 and wait0 then
      -- A threshold sees the queue as it is, however long.
      if third ~= d and rest > 0 then
        local left
        rest, left = muldiv(rest, d, third)
        if left > 0 then rest = rest + 1 end
        if rest >= d then ahead, rest = ahead + 1, rest - d end
      end
      at_most, number, burst0, third = 2^52, n, burst, d
    else
      is_same = wait0 == at_most
    end
    if not is_same or number ~= n or burst0 ~= burst or third ~= d then
      n0, d0 = number, third
      if not (n0 >= 1 and n0 < 2^50 and burst0 >= 1 and burst0 < 2^50 and d0 >= 1) then return -3, 0, 0 end
      if doing == 6 then
        -- Return the lease under the quota that wrote the state, which kept the units on lease. If its burst is smaller
        -- and the bucket was full since the grant, the conversion dropped the units beyond that burst.
        local _, granted_in = unpack('<dd', check, 35)
        local beyond = 0
        if burst > burst0 and tat - granted_in * LIFE >= burst0 * (n0 / d0) - 1 then beyond = burst - burst0 end
        return arrive(raw, n0, burst0, d0, now, cost, doing, granted, beyond)
      end
      -- Used units stay used: units + part/n0, at most the burst of the quota that wrote the state.
      local most0, most0_rest = plus(0, 0, burst0, (n0 - n0 % d0) / d0, n0 % d0, d0)
      if at_most or wait0 then cut_at = tat end
      -- The queue, which keeps its length in time. In front of it the bucket is full.
      local queue, queue_rest = -1, 0
      if wait0 then
        if ahead > most0 + wait0 or (ahead == most0 + wait0 and rest > most0_rest) then
          ahead, rest = most0 + wait0, most0_rest
        end
        queue, queue_rest = ahead - most0, rest - most0_rest
        if queue_rest < 0 then queue, queue_rest = queue - 1, queue_rest + d0 end
        if queue == 0 and queue_rest == 0 then queue = -1 end
      end
      -- The overdraft stays as well: those units were admitted, or a scheduled lease may still spend them.
      local owed = 0
      if ahead > most0 or (ahead == most0 and rest > most0_rest) then
        if overdraft and overdraft > 0 then owed = -whole_units(most0 - ahead, most0_rest - rest, n0, d0) end
        if owed > 0 and owed > overdraft then owed = overdraft end
        ahead, rest, debt = most0, most0_rest, owed
      end
      local units
      units, part = muldiv(ahead, d0, n0)
      part = part + rest
      units, part = units + (part - part % n0) / n0, part % n0
      if queue >= 0 then
        local more, left = muldiv(queue_rest, d, d0)
        if left > 0 then more = more + 1 end
        -- A queue that is longer than requests wait here is left to the quota that wrote it: a repair would free them.
        local longest = at_most or 0
        cut = burst0 > burst or queue > longest or (queue == longest and queue_rest > 0)
        ahead, rest = most + queue, most_rest + more
        if rest >= d then ahead, rest = ahead + 1, rest - d end
        if rest >= d then ahead, rest = ahead + 1, rest - d end
      elseif units >= burst then
        ahead, rest, cut = most, most_rest, units > burst or part > 0
        if cut and doing == 5 then
          -- Debit under the quota that wrote the state: cut to this burst, it would give away what was used.
          local _, _, reset, state, ttl = arrive(raw, n0, burst0, d0, now, cost, doing)
          return -1, 0, reset, state, ttl
        end
      else
        local more, left = muldiv(part, n, n0)
        if left > 0 then more = more + 1 end
        ahead, rest = plus((more - more % d) / d, more % d, units, unit, unit_rest, d)
      end
      if owed > 0 then ahead, rest = plus(ahead, rest, owed, unit, unit_rest, d) end
      -- A charge is one of the quota that wrote the state if its burst is larger: this one does not hold all that was used.
      if doing == 3 and burst0 > burst and (before > now or before == now and before_rest > 0) then
        return arrive(raw, n0, burst0, d0, now, cost, doing, granted)
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
      local held, over = plus((till < now and till or now) - now, 0, out, unit, unit_rest, d)
      if held > ahead or (held == ahead and over > rest) then ahead, rest = held, over end
      if now < till then break end
      generation, current, previous = generation + 1, 0, current
    end
  end

  -- An arrival time beyond the burst, and what requests wait for, comes from a clock that went back or a burst that was
  -- lowered. A denial repairs it, but keeps the overdraft.
  local repair, leaves = n0, false
  if ahead > most or (ahead == most and rest > most_rest) then
    local top, top_rest = most + (at_most or 0), most_rest
    -- A threshold reads a bucket that is empty, whatever it owes, unless it leaves a denial to the quota that wrote the state.
    if overdraft and overdraft > 0 and (role ~= 2 or by_writer or cost > 0 and not n0) then
      top, top_rest = plus(most, most_rest, overdraft, unit, unit_rest, d)
    end
    if ahead > top or (ahead == top and rest > top_rest) then
      if n0 and (cut or muldiv(n, d0, d) >= n0) then longer, longer_rest = ahead - top, rest - top_rest end
      if at_most then cut_at = now + ahead end
      ahead, rest, repair = top, top_rest, true
    end
    if not debt and overdraft and overdraft > 0 then debt = -whole_units(most - ahead, most_rest - rest, n, d) end
  end
  if cut_at then
    if cut_at < now then cut_at = now end
    local step = (cut_at - cut_at % 2^20) / 2^20 + 1
    if step >= 2^32 then step = 2^32 - 1 end
    if not cut_step or step > cut_step then cut_step = step end
  end
  if doing == 8 then
    if n0 then before, before_rest = now + ahead, rest end
    -- The units count from when they are used on, or from when those before them are paid back.
    if forgotten > ahead then ahead, rest = forgotten, 0 end
    ahead, rest = plus(ahead, rest, cost, unit, unit_rest, d)
    local top = most + at_most
    if ahead > top or (ahead == top and rest > most_rest) then ahead, rest = top, most_rest end
    local state = pack('<BddI4dI4dI4', 17, n, burst, d, now + ahead, rest, at_most, cut_step or 0)
    return before_rest, before, 0, state, rest > 0 and ahead + 1 or ahead
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
      local left, granted_in = unpack('<dd', check, 35)
      local out = generation and (generation == granted_in and current or generation == granted_in + 1 and previous) or 0
      -- The bucket no longer knows this lease, and has to count it as spent.
      if out < wanted or wanted < left then return -1, 0, 0 end
      if generation == granted_in then current = current - wanted else previous = previous - wanted end
      if forgotten then left = left > forgotten and left - forgotten or 0 end
      back = -left
    elseif doing == 5 then
      back = wanted
    elseif doing == 3 then
      back = granted + whole_units(most - ahead, most_rest - rest, n, d)
      if back < 0 then back = 0 elseif back > wanted then back = wanted end
      lapsed = wanted - back
      if back == 0 then return -1, lapsed, 0 end
    end
    -- Give units back, or take them whether they fit or not.
    ahead, rest = plus(ahead, rest, back, unit, unit_rest, d)
    if ahead < 0 then ahead, rest = 0, 0 end
    if (doing == 5 or lapsed) and (ahead > most or (ahead == most and rest > most_rest)) then
      generation, current, previous = generation or 0, current or 0, previous or 0
      overdraft = lapsed and granted or 1
      -- Cap the overdraft at about 140 years, where doubles are still exact.
      if ahead > 2^52 then ahead, rest = 2^52, 0 end
    end
  end

  local retry, again = -1, nil
  if cost > burst then
    retry = -2
  elseif cost > 0 then
    local whole, over = plus(ahead, rest, cost, unit, unit_rest, d)
    local fits = whole < most or (whole == most and over <= most_rest)
    if fits then
      ahead, rest, repair = whole, over, true
      -- When would the same units fit again?
      whole, over = plus(whole, over, cost, unit, unit_rest, d)
    else
      whole, over = whole + longer, over + longer_rest
      if over >= d then whole, over = whole + 1, over - d end
      if over < 0 then whole, over = whole - 1, over + d end
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
      if fits then
        again = wait
      else
        retry = wait
        -- The same rounded down.
        if at_most then again = over < most_rest and whole - most - 1 or whole - most end
      end
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
    local whole, over = plus(0, 0, remaining, unit, unit_rest, d)
    if whole > left or (whole == left and over > left_rest) then
      remaining = remaining - 1
    elseif remaining < burst then
      whole, over = plus(whole, over, 1, unit, unit_rest, d)
      if whole < left or (whole == left and over <= left_rest) then remaining = remaining + 1 end
    end
  end

  if remaining < 0 then remaining = 0 end
  if lapsed then remaining = lapsed elseif remaining == 0 and cost == 0 and debt and debt > 0 and not doing then remaining = -2^52 - debt end

  local kind, units, after = 0, 0, 0
  if doing == 7 then
    local reserve, largest, horizon, empty = unpack('<dddd', check, 35)
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
    ahead, rest = plus(ahead, rest, units, unit, unit_rest, d)
  end

  local reset = ahead
  if rest > 0 then reset = reset + 1 end
  local repairs = repair and (cost > 0 or by_writer)
  if not (doing or repairs) then return retry, remaining, reset, nil, nil, nil, nil, again end
  local state, ttl = pack('<BddI4dI4', 17, n, burst, d, now + ahead, rest), reset
  if generation then
    -- The overdraft in units, rounded up.
    if overdraft and overdraft > 0 then
      -- What may be owed stays.
      local at_least = (lapsed or not doing) and overdraft or 0
      overdraft = 0
      if ahead > most or (ahead == most and rest > most_rest) then
        overdraft = -whole_units(most - ahead, most_rest - rest, n, d)
        if overdraft < at_least then overdraft = at_least end
        -- A 32-bit float has 24 bits: round up.
        local step = 1
        while overdraft / step > 2^24 do step = step * 2 end
        overdraft = overdraft + (-overdraft) % step
      end
    else
      overdraft = 0
    end
    local leased = current + previous
    if leased > 0 or overdraft > 0 then state = state .. pack('<I4I4I4f', generation, current, previous, overdraft) end
    if leased > 0 and not doing and retry == -1 then
      -- Report the reset time without the leases, which expire on their own: with them, a refund would give back units
      -- that have refilled already.
      local whole, over = plus(ahead, rest, -leased, unit, unit_rest, d)
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
  elseif not doing and (at_most or cut_step) then
    state = state .. pack('<dI4', at_most or 0, cut_step or 0)
  end
  return retry, remaining, reset, state, ttl, leaves, nil, again
end

if purpose ~= 'refund' then return arrive end
