-- States of rules whose used units scale with the limit. A state that none of the rule's quotas wrote becomes one of its
-- quota `to`, with the same part of that limit used, rounded up. Units keep their times.
--
-- Processes with the old and with the new quota may count on one state, each scaling what the other wrote. So nothing may come
-- back sooner than under the quota that wrote the state. A window of another length is not scaled, but converted as it is where
-- units are kept. A bucket that fills in another time than `to` becomes one with the burst of `to` and the shorter of the two
-- times: it is converted to `to` when units are taken, and a denial leaves it.
--
-- Takes the state and its leases of a window; returns both.

return function(raw, leases, to)
  -- A queue keeps its length in time.
  if #raw < 33 or #raw == 45 then return raw, leases end
  local alg, first, limit, third = unpack('<BddI4', to)
  local alg0, first0, limit0, third0 = unpack('<BddI4', raw)
  if alg0 ~= alg or not (first0 >= 1 and first0 <= 2^53 and limit0 >= 1 and limit0 < 2^50) then return raw, leases end

  local function share(units)
    local whole, part = muldiv(units, limit, limit0)
    return part > 0 and whole + 1 or whole
  end

  if alg > 17 then
    if first0 ~= first or (alg == 21 and third0 ~= third) then return raw, leases end
    if leases then
      local number, units = unpack('<dd', leases)
      if units >= 0 and units < 2^50 then leases = pack('<dd', number, share(units)) end
    end
  end
  if alg == 18 then
    local window, used = unpack('<dd', raw, 22)
    if not (used >= 0 and used <= 2^53) then return raw, leases end
    return to .. pack('<dd', window, share(used)), leases
  end
  if alg == 19 then
    local window, previous, used = unpack('<dI4I4', raw, 22)
    -- The units of both together are rounded once.
    local newer = share(used)
    local older = share(previous + used) - newer
    if newer >= 2^32 then newer = 2^32 - 1 end
    if older >= 2^32 then older = 2^32 - 1 end
    return to .. pack('<dI4I4', window, older, newer), leases
  end
  if alg > 19 then
    -- Rounded from the newest back: at any time, what still counts is rounded up once.
    local entries, all, sum, before = '', 0, 0, 0
    if (#raw - 29) % 12 ~= 0 then return raw end
    for place = #raw - 11, 30, -12 do
      local at, units = unpack('<dI4', raw, place)
      sum = sum + units
      local shared = share(sum)
      units, before = shared - before, shared
      if units >= 2^32 then units = 2^32 - 1 end
      all = all + units
      -- The newest stays, whatever it has.
      if units > 0 or entries == '' then entries = pack('<dI4', at, units) .. entries end
    end
    return to .. pack('<d', all) .. entries
  end

  -- A bucket. The times from empty to full, as mixed numbers.
  if #raw ~= 33 and #raw ~= 49 then return raw end
  if not (third0 >= 1 and first0 < 2^50) then return raw end
  local function full(n, burst, d)
    local part = burst * (n % d)
    return burst * ((n - n % d) / d) + (part - part % d) / d, part % d
  end
  local most0, part0 = full(first0, limit0, third0)
  local most, part = full(first, limit, third)
  local n, burst, d = first, limit, third
  part0, part = part0 * third, part * third0
  if most0 > most or (most0 == most and part0 > part) then
    -- Its units weigh as long as those of `to`, and more of them than its burst weigh as long as they did.
    burst = muldiv(most0 + 1, d, n) + 1
    if burst * d >= 2^53 then burst = (2^53 - 2^53 % d) / d - 1 end
    if burst >= 2^50 then burst = 2^50 - 1 end
    if burst < limit then burst = limit end
  elseif most0 < most or part0 < part then
    n, d = limit0 * first0, third0 * limit
    local a, b = n, d
    while b > 0 do a, b = b, a % b end
    n, d = n / a, d / a
    -- Where that is not to be had exactly, units weigh a little less.
    while d >= 2^32 or d * limit >= 2^53 or n >= 2^50 do
      n, d = (n - n % 2) / 2, (d + d % 2) / 2
    end
    if n < 1 then return raw end
  end
  local tat, rest = unpack('<dI4', raw, 22)
  local over
  rest, over = muldiv(rest, d, third0)
  if over > 0 then rest = rest + 1 end
  if rest >= d then tat, rest = tat + 1, rest - d end
  local state = pack('<BddI4dI4', 17, n, burst, d, tat, rest)
  if #raw == 33 then return state end
  local generation, current, previous, overdraft = unpack('<I4I4I4f', raw, 34)
  current, previous = share(current), share(previous)
  if current >= 2^32 then current = 2^32 - 1 end
  if previous >= 2^32 then previous = 2^32 - 1 end
  if overdraft > 0 then
    overdraft = muldiv(overdraft - overdraft % 1, limit, limit0) + 1
    -- A 32-bit float has 24 bits: round up.
    if overdraft >= 2^24 then overdraft = overdraft + overdraft / 2^23 end
  end
  return state .. pack('<I4I4I4f', generation, current, previous, overdraft)
end
