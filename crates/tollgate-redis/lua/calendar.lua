-- The windows of a calendar, as in `calendar.rs` of tollgate-core, and what a durable rule begins with: functions of `window.lua`.
--
-- Of a calendar the caller brings the window of its time and the next one, as `Calendar::in_words` of tollgate-core: in the place of
-- the period, above 2^52, when this window ends, in seconds, and 18 bits that stand for the calendar; then the lengths of both in
-- quarters of an hour. The window is known by its end. At a time in neither, nor in the one before them, nothing is done, and the
-- caller brings the windows of that time. Where two callers have another end for one window, as by an older time zone database, the
-- later one stands.

-- What the window of a time is known by, and when it ends.
local function at_window(period, lengths, now)
  if period < 2^52 then
    local window = (now - now % period) / period
    return window, (window + 1) * period
  end
  local ends = (period - 2^52 - period % 262144) / 262144 * 1000000
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
  local since = now - (period - 2^52 - period % 262144) / 262144 * 1000000
  return since >= (lengths - lengths % 65536) / 65536 * 900000000 or since < lengths % 65536 * -1350000000
end

-- Whether both have the same windows.
local function is_same(one, other)
  return one == other or one >= 2^52 and other >= 2^52 and one % 262144 == other % 262144
end

-- How long a window is usually (1), or at most (2).
local function length_of(period, lengths, which)
  if period < 2^52 then return period end
  local found = { 96, 96 }
  for _, quarters in ipairs({ { 672, 672 }, { 2922, 2976 }, { 35064, 35136 } }) do
    if lengths % 65536 > quarters[1] * 0.8 then found = quarters end
  end
  return found[which] * 900000000
end

-- How many windows of a calendar have ended from one end to another.
local function windows_between(lengths, from, to)
  local windows = (to - from) / length_of(2^52, lengths, 1)
  return windows < 1 and 1 or windows + 0.5 - (windows + 0.5) % 1
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
  if period >= 2^52 then
    local first = (period - 2^52 - period % 262144) / 262144 * 1000000
    length = (ends > first and (lengths - lengths % 65536) / 65536 or lengths % 65536) * 900000000
  end
  -- Of a value that is not ours, all is lost.
  if ends - length >= (tonumber(since) or now) then return 0 end
  return nil, 6
end

return at_window, is_outside, is_same, windows_between, base_of, length_of
