-- Fixed window, as in `algorithm/fixed_window.rs` of tollgate-core.
--
-- Quota: period in µs, limit. State: the number of the window and the units taken in it (16 bytes). A state with 0
-- units is a fresh one. Where units are owed its first byte is 26: those beyond the limit begin the next windows.
--
-- Of a calendar the caller brings the window of its time and the next one, as `Calendar::in_words` of tollgate-core: in the place of
-- the period, above 2^52, when this window ends, in seconds, and 18 bits that stand for the calendar; then the lengths of both in
-- quarters of an hour. The window is known by its end. At a time in neither, nor in the one before them, nothing is done, and the
-- caller brings the windows of that time. Where two callers have another end for one window, as by an older time zone database, the
-- later one stands.

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

-- Whether the caller does not know the window of a time. The one before its windows ends where they begin.
local function is_outside(period, lengths, now)
  local since = now - (period - CALENDAR - period % 262144) / 262144 * 1000000
  return since >= (lengths - lengths % 65536) / 65536 * 900000000 or since < lengths % 65536 * -1350000000
end

-- Of a durable rule whose state is not there: the units to begin with, or a refusal if they are lost; and whether those beyond the
-- limit are owed, which a base below -1 says. A key says since when the server
-- has its states. Whoever does not find it writes it; a window that begins later is fresh where there is no state.
local function base_of(period, lengths, now)
  -- Behind an id, if the check has one.
  local place, base = unpack('<B', check, 3) > 1 and 52 or 35, -1
  if unpack('<B', check) % 8 == 0 then base = unpack('<d', check, place + 2) else place = 59 end
  if base >= 0 then return base end
  if base < -1 then return -2 - base, nil, true end
  local name = KEYS[unpack('<H', check, place)]
  local since = try('GET', name)
  if not since then
    since = now
    try('SET', name, format('%d', now))
  elseif since.err then
    return nil, refusal(since.err, false) or 5
  end
  local _, ends = at_window(period, lengths, now)
  local length = period
  if period >= CALENDAR then
    local first = (period - CALENDAR - period % 262144) / 262144 * 1000000
    length = (ends > first and (lengths - lengths % 65536) / 65536 or lengths % 65536) * 900000000
  end
  -- Of a value that is not ours, all is lost.
  if ends - length >= (tonumber(since) or now) then return 0 end
  return nil, 6
end
if purpose == 'window' then return at_window end

local function ends_at(period, window) return period < CALENDAR and (window + 1) * period or window end

-- Whether both have the same windows.
local function is_same(one, other)
  return one == other or one >= CALENDAR and other >= CALENDAR and one % 262144 == other % 262144
end

-- How many windows of a calendar have ended from one end to another: by what an hour, a day, a week, a month or a year lasts.
local function windows_between(period, lengths, from, to)
  if period < CALENDAR then return to - from end
  local quarters, usual = lengths % 65536, 4
  for _, length in ipairs({ 96, 672, 2922, 35064 }) do
    if quarters > length * 0.8 then usual = length end
  end
  usual = (to - from) / (usual * 900000000)
  return usual < 1 and 1 or usual + 0.5 - (usual + 0.5) % 1
end

-- When units have come back of a window that owes: those that lie `beyond` what may be used then.
local function back_at(period, lengths, window, limit, beyond)
  local turns = (beyond - 1 - (beyond - 1) % limit) / limit
  local length = period < CALENDAR and period or (lengths - lengths % 65536) / 65536 * 900000000
  return ends_at(period, window) + (turns > 0 and turns * length or 0)
end

if purpose == 'refund' then
  return function(raw, period, _, _, now, cost, at, fresh_at)
    if #raw ~= 37 then return -3 end
    local alg, period0, limit0, lengths0, window, used = unpack('<BddI4dd', raw)
    if alg ~= 18 and alg ~= 26 or not (window >= 0 and window <= 2^53 and used >= 0 and used <= 2^53) then return -3 end
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
    if alg == 26 then ends = back_at(period0, lengths0, window, limit0, used - cost) end
    local ttl = ends - now
    -- The next windows of a calendar may be longer.
    if alg == 26 and period0 >= CALENDAR then ttl = ttl * 1.125 end
    return -1, sub(raw, 1, 29) .. pack('<d', used - cost), ttl
  end
end

if purpose == 'take' then
  return function(key, last, period, limit, lengths, now, cost, by_server, margin, out, n)
    if period >= CALENDAR and is_outside(period, lengths, now) then return key end
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
      elseif durable then
        return key, raw
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

return function(raw, period, limit, lengths, now, cost, by_writer)
  if period >= CALENDAR then
    -- As the quota that wrote a state: the caller knows the windows of its time.
    local own, own_lengths = unpack('<d', check, 15), unpack('<I4', check, 31)
    if is_same(own, period) then period, lengths = own, own_lengths end
    if own >= CALENDAR and not by_writer and is_outside(own, own_lengths, now) then return -3, 7, 0 end
  end
  local current = at_window(period, lengths, now)
  local window, used, foreign = current, 0, false
  -- Whether units are owed, and how many by the quota that says so.
  local owes, over_limit = false, 0
  -- A window of another quota that is over: a denial writes it back unchanged.
  local over, over_used
  local begins = false
  if not raw and durable then
    local why
    used, why, owes = base_of(period, lengths, now)
    if why then return -3, why, 0 end
    over_limit = owes and used - limit or 0
    -- A denial writes it, too.
    begins = used > 0
  end
  if raw then
    if #raw ~= 37 then return -3, 0, 0 end
    local alg, period0, limit0, lengths0, window0, used0 = unpack('<BddI4dd', raw)
    owes = alg == 26
    if alg ~= 18 and not owes or not (window0 >= 0 and window0 <= 2^53 and used0 >= 0 and used0 <= 2^53) then return -3, 0, 0 end
    local same = is_same(period0, period)
    if owes then
      if not (period0 >= 1 and period0 <= 2^53 and limit0 >= 1 and limit0 <= 2^53) then return -3, 0, 0 end
      -- What is owed begins the present window, as the quota that wrote the state has it.
      local words, lengths_of = period0, lengths0
      if same then words, lengths_of = period, lengths end
      local this = at_window(words, lengths_of, now)
      if window0 < this and ends_at(words, window0) <= now then
        local gone = windows_between(words, lengths_of, window0, this) * limit0
        window0, used0 = this, used0 > gone and used0 - gone or 0
      end
      over_limit = used0 - limit0
      -- A threshold that leaves a denial to the quota that wrote the state sees what it owes.
      owes = role ~= 2 or by_writer or cost > 0 and same and limit0 == limit
    end
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
    local keeps = used > 0 and not foreign and not begins
    used = used + cost
    local reset = 0
    if used > 0 then reset = ends_at(period, window) - now end
    if owes then
      keeps = false
      if used > limit then reset = back_at(period, lengths, window, limit, used) - now end
    end
    if over_limit > 0 and left == 0 then left = -2^52 - over_limit end
    if cost == 0 then return -1, left, reset end
    left = left - cost
    local state = pack('<BddI4dd', 18, period, limit, lengths, window, used)
    return -1, left, reset, state, reset, foreign, keeps, left < cost and reset
  end
  -- Repair to the next window, not to the present one: a clock that goes back over a boundary would otherwise free the
  -- window it has just left.
  local repair = foreign or begins
  local following = at_window(period, lengths, ends_at(period, current))
  if window > following then window, repair = following, true end
  local reset = ends_at(period, window) - now
  local retry, alg = reset, 18
  if owes then
    reset = back_at(period, lengths, window, limit, used) - now
    if used > limit then alg = 26 end
    if cost <= limit then retry = back_at(period, lengths, window, limit, used + cost - limit) - now end
  end
  if cost > limit then retry = -2 end
  if used == 0 then reset = 0 end
  if not repair then return retry, left, reset end
  if over then window, used = over, over_used end
  if used == 0 then return retry, left, reset, '', 0, foreign end
  local ttl = alg == 26 and period >= CALENDAR and reset * 1.125 or reset
  return retry, left, reset, pack('<BddI4dd', alg, period, limit, lengths, window, used), ttl, foreign
end
