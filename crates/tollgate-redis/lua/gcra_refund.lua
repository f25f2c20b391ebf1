-- Gives units of a bucket back: stands behind `gcra.lua`.

if alg == 16 then
  -- Of a queue units go back only if they were the last ones that were taken, from a state that was neither repaired nor
  -- converted since: the others were told when they start. Otherwise they lapse, and the fourth result says so.
  return function(raw, n, burst, d, now, cost, at, fresh_at)
    if #raw ~= 45 then return (#raw == 33 or #raw == 49) and -1 or -3, nil, nil, cost end
    local alg, n0, burst0, d0, tat, rest, wait0, cut_step = unpack('<BddI4dI4dI4', raw)
    if alg ~= 17 or not (tat >= 0 and tat <= 2^53) then return -3 end
    local wait, before, before_rest = unpack('<ddd', check, 51)
    if n0 ~= n or burst0 ~= burst or d0 ~= d or wait0 ~= wait then return -1, nil, nil, cost end
    local is_last = (rest > 0 and tat + 1 or tat) == fresh_at
    if not is_last or (at - at % 2^20) / 2^20 < cut_step or fresh_at <= now then
      return -1, nil, nil, cost
    end
    if before < 0 then
      before, before_rest = plus(tat, rest, -cost, (n - n % d) / d, n % d, d)
      if before < 0 then before, before_rest = 0, 0 end
    end
    local state = sub(raw, 1, 21) .. pack('<dI4', before, before_rest) .. sub(raw, 34)
    return -1, state, (before_rest > 0 and before + 1 or before) - now
  end
end

return function(raw, n, burst, d, now, cost, at, fresh_at)
  if #raw ~= 33 and #raw ~= 49 then
    if #raw ~= 45 then return -3 end
    -- Where requests wait, units from before lapse.
    if unpack('<d', raw, 34) > 0 then return -1 end
  end
  local alg, n0, burst0, d0, tat, rest = unpack('<BddI4dI4', raw)
  if alg ~= 17 or not (tat >= 0 and tat <= 2^53) then return -3 end
  if not (n0 >= 1 and n0 < 2^50 and burst0 >= 1 and burst0 < 2^50 and d0 >= 1) then return -3 end
  if cost > burst then cost = burst end
  local unit, unit_rest = (n - n % d) / d, n % d
  local units, units_rest = plus(0, 0, cost, unit, unit_rest, d)
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
    local most, most_rest = plus(0, 0, burst, unit, unit_rest, d)
    if back > most or (back == most and back_rest > most_rest) then back, back_rest = most, most_rest end
    local count, part = muldiv(back, d, n)
    part = part + back_rest
    count, part = count + (part - part % n) / n, part % n
    -- The bucket may have been full when it was converted. The conversion then dropped the units beyond the new
    -- burst.
    unit, unit_rest = (n0 - n0 % d0) / d0, n0 % d0
    local full, full_rest = plus(0, 0, burst0, unit, unit_rest, d0)
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
    back, back_rest = plus((whole - whole % d0) / d0, whole % d0, count, unit, unit_rest, d0)
    if is_faster then
      back = back - since
      whole, over = plus(0, 0, cost, unit, unit_rest, d0)
      if back > whole or (back == whole and back_rest > over) then back, back_rest = whole, over end
      back, back_rest = plus(back, back_rest, -forgotten, unit, unit_rest, d0)
      if back < 0 then back, back_rest = 0, 0 end
    end
  end
  ahead, rest = ahead - back, rest - back_rest
  if rest < 0 then ahead, rest = ahead - 1, rest + d0 end
  if ahead < 0 then ahead, rest = 0, 0 end
  local ttl = rest > 0 and ahead + 1 or ahead
  local state = sub(raw, 1, 21) .. pack('<dI4', now + ahead, rest)
  if #raw < 49 then return -1, state .. sub(raw, 34), ttl end
  -- Keep the state until the leases have expired and the bucket has refilled after that.
  local generation, current, previous = unpack('<I4I4I4', raw, 34)
  local last = (generation + 2) * LIFE - now + (current + previous) * (n0 / d0)
  if current + previous > 0 and ttl < last then ttl = last + (-last) % 1 end
  return -1, state .. sub(raw, 34), ttl
end
