-- Sliding window in sub-buckets, as in `algorithm/sliding_buckets.rs` of tollgate-core.
--
-- Quota: width of a sub-bucket in µs, limit, number of sub-buckets. State: the units of all sub-buckets (8 bytes), then
-- 12 bytes for each sub-bucket that holds units, oldest first: its number and its units. The last one is the newest; it
-- stays even if a refund empties it. A take removes expired sub-buckets, so that a decision reads few.

if purpose == 'refund' then
  return function(raw, width, _, buckets, now, cost, at, fresh_at)
    if #raw < 41 or (#raw - 29) % 12 ~= 0 then return -3 end
    local alg, width0, _, buckets0, used = unpack('<BddI4d', raw)
    if alg ~= 21 or not (used >= 0 and used <= 2^53) then return -3 end
    if not (width0 >= 1 and width0 <= 2^53) then return -3 end
    -- The first and the last sub-bucket that may hold these units.
    local first, last
    if width0 == width and buckets0 == buckets then
      first = (fresh_at - fresh_at % width) / width - buckets - 1
      if first < 0 then first = 0 end
      last = first
    else
      -- The conversion carried units that still counted into the sub-bucket in which they were taken, or a later one.
      first, last = (at - at % width0) / width0, 2^53
      local number, newest = (now - now % width0) / width0, unpack('<d', raw, #raw - 11)
      if newest > number then number = newest end
      if now >= fresh_at or first < number - buckets0 then return -1 end
    end
    local entries, newest, gone = '', nil, 0
    for place = 30, #raw - 11, 12 do
      local number, units = unpack('<dI4', raw, place)
      if number >= first and number <= last and gone < cost then
        local back = cost - gone
        if back > units then back = units end
        units, gone = units - back, gone + back
      end
      if units > 0 then newest = number end
      entries = entries .. pack('<dI4', number, units)
    end
    if gone == 0 then return -1 end
    raw = sub(raw, 1, 21) .. pack('<d', used - gone) .. entries
    return -1, newest and raw or '', newest and (newest + buckets0 + 1) * width0 - now or 0
  end
end

return function(raw, width, limit, buckets, now, cost)
  local current = (now - now % width) / width
  -- `all`: the units of all sub-buckets from `first` on in `ring`; then the newest sub-bucket.
  local ring, first, all, newest, newest_units, foreign = '', 1, 0, 0, 0, false
  if raw then
    if #raw < 41 or (#raw - 29) % 12 ~= 0 then return -3, 0, 0 end
    local alg, width0, limit0, buckets0
    alg, width0, limit0, buckets0, all = unpack('<BddI4d', raw)
    if alg ~= 21 or not (all >= 0 and all <= 2^53) then return -3, 0, 0 end
    ring, first = raw, 30
    newest, newest_units = unpack('<dI4', ring, #ring - 11)
    if not (newest >= 0 and newest <= 2^53) then return -3, 0, 0 end
    foreign = width0 ~= width or limit0 ~= limit or buckets0 ~= buckets
    if width0 ~= width or buckets0 ~= buckets then
      if not (width0 >= 1 and width0 <= 2^53) then return -3, 0, 0 end
      -- Other sub-buckets: units that count now count in the new window as if just taken.
      local number = (now - now % width0) / width0
      while first < #ring do
        local oldest, units = unpack('<dI4', ring, first)
        if oldest >= number - buckets0 then break end
        first, all = first + 12, all - units
      end
      ring, first, newest, newest_units = '', 1, 0, 0
      if all > 0 then
        if all >= 2^32 then all = 2^32 - 1 end
        ring, newest, newest_units = pack('<dI4', current, all), current, all
      end
    end
  end

  -- A future state counts as it is, so that a clock that goes back never refills.
  local number = current < newest and newest or current
  local counting, used = first, all
  while counting < #ring do
    local oldest, units = unpack('<dI4', ring, counting)
    if oldest >= number - buckets then break end
    counting, used = counting + 12, used - units
  end
  local left = limit - used
  if left < 0 then left = 0 end
  local fits, keeps = cost <= left, newest == number and newest_units > 0 and not foreign
  local shift, reset, taken = 0, 0, cost
  if fits and cost > 0 then
    -- Expired sub-buckets are left out.
    if ring ~= '' and newest == number then
      -- Limits are below 2^32; only a report takes more.
      if newest_units + cost >= 2^32 then taken = 2^32 - 1 - newest_units end
      ring = sub(ring, counting, -13) .. pack('<dI4', number, newest_units + taken)
    else
      ring = sub(ring, counting) .. pack('<dI4', number, cost)
    end
    all, left, reset = used + taken, left - taken, (number + buckets + 1) * width - now
    first, counting, used = 1, 1, all
  elseif cost > 0 then
    -- A denial repairs a state far in the future: it moves back to the next sub-bucket, and entries keep their distances.
    local least = current + 1 < buckets and buckets or current + 1
    if newest > least then shift = newest - least end
  end
  local place = #ring - 11
  while reset == 0 and place >= counting do
    local used_in, units = unpack('<dI4', ring, place)
    if units > 0 then reset = (used_in - shift + buckets + 1) * width - now end
    place = place - 12
  end
  if reset < 0 then reset = 0 end
  if cost == 0 then return -1, left, reset end

  -- When the units fit, or fit again.
  local retry = -2
  if cost <= limit and (not fits or left < cost) then
    local must_go, place = used + cost - limit, counting
    while place < #ring do
      local oldest, units = unpack('<dI4', ring, place)
      if units >= must_go then
        retry = (oldest - shift + buckets + 1) * width - now
        break
      end
      must_go, place = must_go - units, place + 12
    end
  end
  if shift > 0 then
    local entries = ''
    for place = first, #ring - 11, 12 do
      local oldest, units = unpack('<dI4', ring, place)
      entries = entries .. pack('<dI4', oldest - shift, units)
    end
    ring, first = entries, 1
  elseif not fits and not foreign then
    return retry, left, reset
  end
  local state = ring == '' and '' or pack('<BddI4d', 21, width, limit, buckets, all) .. sub(ring, first)
  if fits then return -1, left, reset, state, reset, foreign, keeps, left < cost and retry end
  return retry, left, reset, state, reset, foreign
end
