-- Fixed window, as in `algorithm/fixed_window.rs` of tollgate-core.
--
-- Quota: period in µs, limit. State: the number of the window and the units taken in it (16 bytes). A state with 0
-- units is a fresh one.

if purpose == 'refund' then
  return function(raw, period, _, _, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local alg, period0, _, _, window, used = unpack('<BddI4dd', raw)
    if alg ~= 18 or not (window >= 0 and window <= 2^53 and used >= 0 and used <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    local ends = (window + 1) * period0
    if period0 == period then
      -- A refund does not give units of an earlier window back to a later one.
      if fresh_at ~= ends then return -1 end
    elseif now >= fresh_at or (at - at % period0) / period0 ~= window then
      -- Windows of another length: the conversion did not carry these units over, or the window had not begun yet.
      return -1
    end
    if cost >= used then return -1, '', 0 end
    return -1, sub(raw, 1, 29) .. pack('<d', used - cost), ends - now
  end
end

if purpose == 'take' then
  return function(key, last, period, limit, _, now, cost, by_server, margin, out, n)
    local keys = KEYS
    local current = (now - now % period) / period
    local reset = (current + 1) * period - now
    local ttl = reset + 999
    ttl = format('%d', (ttl - ttl % 1000) / 1000 + margin)
    for key = key, last do
      local name = keys[key]
      local raw, used, done = try('GET', name), 0
      if raw then
        if #raw ~= 37 then return key, raw end
        local alg, period0, limit0, _, window0, used0 = unpack('<BddI4dd', raw)
        if window0 == current then used = used0 elseif not (window0 >= 0 and window0 < current) then alg = 0 end
        if alg ~= 18 or period0 ~= period or limit0 ~= limit or not (used0 >= 0) then return key, raw end
      end
      local left = limit - used - cost
      if left < 0 then return key, raw end
      if used > 0 and by_server then
        done = try('SETRANGE', name, '29', pack('<d', used + cost))
      else
        done = try('SET', name, pack('<BddI4dd', 18, period, limit, 0, current, used + cost), 'PX', ttl)
      end
      -- SETRANGE returns the length.
      if done ~= 37 and done.err then return key, raw end
      out[n + 1], out[n + 2], out[n + 3] = left < cost and -4 - reset or -1, left, reset
      n = n + 3
    end
    return last + 1
  end
end

return function(raw, period, limit, _, now, cost)
  local current = (now - now % period) / period
  local window, used, foreign = current, 0, false
  -- A window of another quota that is over: a denial writes it back unchanged.
  local over, over_used
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local alg, period0, limit0, _, window0, used0 = unpack('<BddI4dd', raw)
    if alg ~= 18 or not (window0 >= 0 and window0 <= 2^53 and used0 >= 0 and used0 <= 2^53) then return -3, 0, 0 end
    foreign = period0 ~= period or limit0 ~= limit
    if foreign then
      if not (period0 >= 1 and period0 <= 2^53) then return -3, 0, 0 end
      -- In a window of another length, units that count now count as if just taken.
      if period0 ~= period then window0, used0 = current, (window0 + 1) * period0 > now and used0 or 0 end
    end
    -- A future window counts, so that a clock that goes back never refills.
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
  -- Repair to the next window, not to the present one: a clock that goes back over a boundary would otherwise free the
  -- window it has just left.
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
