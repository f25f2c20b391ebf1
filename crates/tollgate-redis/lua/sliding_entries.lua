-- Sliding windows that count by entries: the log (20), as in `algorithm/sliding_log.rs` of tollgate-core, and sub-buckets (21), as in
-- `algorithm/sliding_buckets.rs`. A log is a window in sub-buckets of 1 µs; what the two do otherwise is said where it is done.
--
-- Quota: of a log the period in µs, limit, 0; of sub-buckets the width of one in µs, limit, and their number. State: the units of all
-- entries (8 bytes), then 12 bytes for each entry, oldest first: its instant, or the number of its sub-bucket, and its units. The last
-- one is the newest; in sub-buckets it stays even if a refund empties it. A take removes expired entries, so that a decision reads few.

-- A log is told by the third number of its quota, so that no function has to keep the algorithm: each value that a function keeps costs
-- each call. So does each further function.

if purpose == 'refund' then
  return function(raw, first, _, third, now, cost, at, fresh_at)
    if #raw < 41 or (#raw - 29) % 12 ~= 0 then return -3 end
    local alg, width0, _, buckets0, used = unpack('<BddI4d', raw)
    local is_log = third == 0
    if alg ~= (is_log and 20 or 21) or not (used >= 0 and used <= 2^53 and width0 >= 1 and width0 <= 2^53) then return -3 end
    local width, buckets = width0, buckets0
    -- The numbers of the first and the last entry that may hold these units.
    local oldest, last
    if is_log then
      width, buckets = 1, width0 - 1
      -- Entries keep their instants under every quota. Only a conversion from a shorter window moves them, to an instant
      -- that is not recorded.
      oldest = fresh_at > first and fresh_at - first or 0
      last = oldest
    elseif width0 == first and buckets0 == third then
      oldest = (fresh_at - fresh_at % width) / width - buckets - 1
      if oldest < 0 then oldest = 0 end
      last = oldest
    else
      -- The conversion carried units that still counted into the sub-bucket in which they were taken, or a later one.
      oldest, last = (at - at % width) / width, 2^53
      local number, newest = (now - now % width) / width, unpack('<d', raw, #raw - 11)
      if newest > number then number = newest end
      if now >= fresh_at or oldest < number - buckets then return -1 end
    end
    local from = #raw + 1
    while from > 30 and unpack('<d', raw, from - 12) >= oldest do from = from - 12 end
    local behind, entries, gone = from, '', 0
    while behind < #raw and gone < cost do
      local number, units = unpack('<dI4', raw, behind)
      if number > last then break end
      local back = math.min(cost - gone, units)
      gone, behind = gone + back, behind + 12
      if back < units or not is_log then entries = entries .. pack('<dI4', number, units - back) end
    end
    if gone == 0 then return -1 end
    entries = sub(raw, 30, from - 1) .. entries .. sub(raw, behind)
    local place = #entries - 11
    while place > 0 and unpack('<I4', entries, place + 8) == 0 do place = place - 12 end
    if place < 0 then return -1, '', 0 end
    local newest = unpack('<d', entries, place)
    return -1, sub(raw, 1, 21) .. pack('<d', used - gone) .. entries, (newest + buckets + 1) * width - now
  end
end

return function(raw, first, limit, third, now, cost)
  -- The width of a sub-bucket, and for how many numbers an entry counts behind its own.
  local is_log, width, buckets = third == 0, first, third
  if is_log then width, buckets = 1, first - 1 end
  local kind, current = is_log and 20 or 21, (now - now % width) / width
  -- `all`: the units of all entries from `from` on in `ring`; then the newest entry.
  local ring, from, all, newest, newest_units, foreign, leaves = '', 1, 0, 0, 0, false, false
  if raw then
    if #raw < 41 or (#raw - 29) % 12 ~= 0 then return -3, 0, 0 end
    local alg, first0, limit0, third0
    alg, first0, limit0, third0, all = unpack('<BddI4d', raw)
    newest, newest_units = unpack('<dI4', raw, #raw - 11)
    if alg ~= kind or not (all >= 0 and all <= 2^53 and newest >= 0 and newest <= 2^53) then return -3, 0, 0 end
    ring, from = raw, 30
    foreign = first0 ~= first or limit0 ~= limit or third0 ~= third
    -- A denial leaves it to the quota that wrote it, but not where these windows are shorter.
    leaves = foreign and (third0 + 1) * first0 <= (third + 1) * first
    if foreign and (is_log or first0 ~= first or third0 ~= third) then
      -- Entries that had expired under the old quota stay expired. Those that count now count in other sub-buckets as if just taken; of
      -- a log those that would expire at once under a shorter window do, and the others keep their instants.
      if not (first0 >= 1 and first0 <= 2^53) then return -3, 0, 0 end
      local width0, buckets0 = first0, third0
      if is_log then width0, buckets0 = 1, first0 - 1 end
      local expired, moved = (now - now % width0) / width0 - buckets0, 0
      while from < #ring do
        local number, units = unpack('<dI4', ring, from)
        if number < expired then
          all = all - units
        elseif is_log and number >= current - buckets then
          break
        else
          moved = moved + units
        end
        from = from + 12
      end
      ring, from, newest, newest_units = sub(ring, from), 1, 0, 0
      if ring ~= '' then newest, newest_units = unpack('<dI4', ring, #ring - 11) end
      if moved >= 2^32 then moved, all = 2^32 - 1, 2^32 - 1 end
      if moved > 0 and ring ~= '' and newest >= current then
        newest_units = newest_units + moved
        ring = sub(ring, 1, -13) .. pack('<dI4', newest, newest_units)
      elseif moved > 0 then
        newest, newest_units = current, moved
        ring = ring .. pack('<dI4', newest, newest_units)
      end
    end
  end

  -- Sub-buckets of the future count as they are, so that a clock that goes back never refills.
  local number = not is_log and current < newest and newest or current
  local counting, used = from, all
  while counting < #ring do
    local oldest, units = unpack('<dI4', ring, counting)
    if oldest >= number - buckets then break end
    counting, used = counting + 12, used - units
  end
  local left = limit - used
  if left < 0 then left = 0 end
  local is_newest = ring ~= '' and newest >= current
  local fits, keeps, repairs, reset = cost <= left, is_newest and newest_units > 0 and not foreign, false, 0
  if fits and cost > 0 then
    -- Expired entries are left out. If the clock stands still or went back, the newest entry counts it, so that they stay in order.
    local before, last = 0, -1
    if is_newest then before, last = newest_units, -13 else newest = current end
    -- Limits are below 2^32; only a report takes more.
    local taken = before + cost < 2^32 and cost or 2^32 - 1 - before
    ring = sub(ring, counting, last) .. pack('<dI4', newest, before + taken)
    all, left, reset = used + taken, left - taken, (newest + buckets + 1) * width - now
    from, counting, used = 1, 1, all
  elseif cost > 0 then
    -- A denial repairs a state of the future: entries of a log move to now, and those beyond the next sub-bucket to that. The others
    -- stay; of sub-buckets those that have expired would count again.
    local least = is_log and current or current + 1 < buckets and buckets or current + 1
    repairs = newest > least
    if repairs then
      if not is_log then from, all = counting, used end
      local last, moved = #ring - 11, 0
      while last >= from do
        local oldest, units = unpack('<dI4', ring, last)
        if oldest < least then break end
        moved, last = moved + units, last - 12
      end
      if moved >= 2^32 then
        used = used - moved + 2^32 - 1
        moved, all = 2^32 - 1, used
      end
      ring = sub(ring, from, last + 11) .. pack('<dI4', least, moved)
      from, counting = 1, counting - from + 1
    end
  end
  local place = #ring - 11
  while reset == 0 and place >= counting do
    local used_in, units = unpack('<dI4', ring, place)
    if units > 0 then reset = (used_in + buckets + 1) * width - now end
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
        retry = (oldest + buckets + 1) * width - now
        break
      end
      must_go, place = must_go - units, place + 12
    end
  end
  if not (fits or repairs or foreign) then return retry, left, reset end
  local state = ring == '' and '' or pack('<BddI4d', kind, first, limit, third, all) .. sub(ring, from)
  if fits then return -1, left, reset, state, reset, foreign, keeps, left < cost and retry end
  return retry, left, reset, state, reset, leaves
end
