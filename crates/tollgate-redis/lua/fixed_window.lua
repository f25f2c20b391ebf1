-- Fixed window, as in `algorithm/fixed_window.rs` of tollgate-core.
--
-- Quota: period in µs, limit. State: the number of the window and the units taken in it (16 bytes). A state with 0
-- units is a fresh one.
--
-- Of a calendar the caller brings the window of its time and the next one, as `Calendar::in_words` of tollgate-core: in the place of
-- the period, above 2^52, when this window ends, in seconds, and 18 bits that stand for the calendar; then the lengths of both in
-- quarters of an hour. The window is known by its end. A caller whose clock is off by more than that counts in windows of these
-- lengths. Where two callers have another end for one window, as by an older time zone database, the later one stands.

local CALENDAR = 2^52

-- What the window of a time is known by, and when it ends.
local function at_window(period, lengths, now)
  if period < CALENDAR then
    local window = (now - now % period) / period
    return window, (window + 1) * period
  end
  local ends = (period - CALENDAR - period % 262144) / 262144 * 1000000
  local length = lengths % 65536 * 900000000
  local since = now - ends
  if since >= 0 then
    length = (lengths - lengths % 65536) / 65536 * 900000000
    ends = ends + length
    since = since - length
    if since >= 0 then ends = ends + length + since - since % length end
  elseif since < -length then
    -- A caller that is ahead.
    ends = ends - length
    since = ends - now - 1
    if since >= length then ends = ends - (since - since % length) end
  end
  return ends, ends
end

local function ends_at(period, window) return period < CALENDAR and (window + 1) * period or window end

-- Whether both have the same windows.
local function is_same(one, other)
  return one == other or one >= CALENDAR and other >= CALENDAR and one % 262144 == other % 262144
end

if purpose == 'refund' then
  return function(raw, period, _, _, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local alg, period0, _, lengths0, window, used = unpack('<BddI4dd', raw)
    if alg ~= 18 or not (window >= 0 and window <= 2^53 and used >= 0 and used <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    local ends = ends_at(period0, window)
    if is_same(period0, period) then
      -- A refund does not give units of an earlier window back to a later one.
      if fresh_at ~= ends then return -1 end
    elseif now >= fresh_at or at_window(period0, lengths0, at) ~= window then
      -- Windows of another length: the conversion did not carry these units over, or the window had not begun yet.
      return -1
    end
    if cost >= used then return -1, '', 0 end
    return -1, sub(raw, 1, 29) .. pack('<d', used - cost), ends - now
  end
end

if purpose == 'take' then
  return function(key, last, period, limit, lengths, now, cost, by_server, margin, out, n)
    local keys = KEYS
    local current, ends = at_window(period, lengths, now)
    local reset = ends - now
    local ttl = reset + 999
    ttl = format('%d', (ttl - ttl % 1000) / 1000 + margin)
    for key = key, last do
      local name = keys[key]
      local raw, used, done = try('GET', name), 0
      if raw then
        if #raw ~= 37 then return key, raw end
        local alg, period0, limit0, _, window0, used0 = unpack('<BddI4dd', raw)
        if window0 == current then used = used0 elseif not (window0 >= 0 and window0 < current) or period >= CALENDAR and window0 > now then alg = 0 end
        if alg ~= 18 or period0 ~= period or limit0 ~= limit or not (used0 >= 0) then return key, raw end
      end
      local left = limit - used - cost
      if left < 0 then return key, raw end
      if used > 0 and by_server then
        done = try('SETRANGE', name, '29', pack('<d', used + cost))
      else
        done = try('SET', name, pack('<BddI4dd', 18, period, limit, lengths, current, used + cost), 'PX', ttl)
      end
      -- SETRANGE returns the length.
      if done ~= 37 and done.err then return key, raw end
      out[n + 1], out[n + 2], out[n + 3] = left < cost and -4 - reset or -1, left, reset
      n = n + 3
    end
    return last + 1
  end
end

return function(raw, period, limit, lengths, now, cost)
  if period >= CALENDAR then
    -- As the quota that wrote a state: the caller knows the windows of its time.
    local own, own_lengths = unpack('<d', check, 15), unpack('<I4', check, 31)
    if is_same(own, period) then period, lengths = own, own_lengths end
  end
  local current = at_window(period, lengths, now)
  local window, used, foreign = current, 0, false
  -- A window of another quota that is over: a denial writes it back unchanged.
  local over, over_used
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local alg, period0, limit0, _, window0, used0 = unpack('<BddI4dd', raw)
    if alg ~= 18 or not (window0 >= 0 and window0 <= 2^53 and used0 >= 0 and used0 <= 2^53) then return -3, 0, 0 end
    local same = is_same(period0, period)
    foreign = not same or limit0 ~= limit
    if foreign then
      if not (period0 >= 1 and period0 <= 2^53) then return -3, 0, 0 end
      -- In a window of another length, units that count now count as if just taken.
      if not same then window0, used0 = current, ends_at(period0, window0) > now and used0 or 0 end
    end
    -- A caller with another database: it is not over there.
    if same and period >= CALENDAR and window0 > now and window0 < current then window0 = current end
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
    if used > 0 then reset = ends_at(period, window) - now end
    if cost == 0 then return -1, left, reset end
    left = left - cost
    local state = pack('<BddI4dd', 18, period, limit, lengths, window, used)
    return -1, left, reset, state, reset, foreign, keeps, left < cost and reset
  end
  -- Repair to the next window, not to the present one: a clock that goes back over a boundary would otherwise free the
  -- window it has just left.
  local repair = foreign
  local following = at_window(period, lengths, ends_at(period, current))
  if window > following then window, repair = following, true end
  local reset = ends_at(period, window) - now
  local retry = reset
  if cost > limit then retry = -2 end
  if used == 0 then reset = 0 end
  if not repair then return retry, left, reset end
  if over then window, used = over, over_used end
  if used == 0 then return retry, left, reset, '', 0, foreign end
  return retry, left, reset, pack('<BddI4dd', 18, period, limit, lengths, window, used), reset, foreign
end
