-- Sliding log, as in `algorithm/sliding_log.rs` of tollgate-core.
--
-- Quota: period in µs, limit. State: the units of all entries (8 bytes), then 12 bytes for each entry, oldest first:
-- its instant and its units. A take removes expired entries, so that a decision reads few.

if purpose == 'refund' then
  return function(raw, period, _, _, now, cost, _, fresh_at)
    if #raw < 41 or (#raw - 29) % 12 ~= 0 then return -3 end
    local alg, period0, _, _, used = unpack('<BddI4d', raw)
    if alg ~= 20 or not (used >= 0 and used <= 2^53) then return -3 end
    if not (period0 >= 1 and period0 <= 2^53) then return -3 end
    -- Entries keep their instants under every quota. Only a conversion from a shorter window moves them, to an instant
    -- that is not recorded.
    local wanted = fresh_at > period and fresh_at - period or 0
    for place = #raw - 11, 30, -12 do
      local at, units = unpack('<dI4', raw, place)
      if at == wanted then
        if cost > units then cost = units end
        local entry = cost < units and pack('<dI4', at, units - cost) or ''
        local entries = sub(raw, 30, place - 1) .. entry .. sub(raw, place + 12)
        if entries == '' then return -1, '', 0 end
        local newest = unpack('<d', entries, #entries - 11)
        return -1, sub(raw, 1, 21) .. pack('<d', used - cost) .. entries, newest + period0 - now
      end
      if at < wanted then break end
    end
    return -1
  end
end

return function(raw, period, limit, _, now, cost)
  -- `all`: the units of all entries from `first` on in `log`; then the newest entry.
  local log, first, all, newest, newest_units, foreign = '', 1, 0, nil, 0, false
  if raw then
    if #raw < 41 or (#raw - 29) % 12 ~= 0 then return -3, 0, 0 end
    local alg, period0, limit0
    alg, period0, limit0, _, all = unpack('<BddI4d', raw)
    if alg ~= 20 or not (all >= 0 and all <= 2^53) then return -3, 0, 0 end
    log, first = raw, 30
    foreign = period0 ~= period or limit0 ~= limit
    if foreign then
      if not (period0 >= 1 and period0 <= 2^53) then return -3, 0, 0 end
      -- Entries that had expired under the old quota stay expired. Entries that would expire at once under a shorter
      -- window count in it as if just taken.
      local moved = 0
      while first < #log do
        local at, units = unpack('<dI4', log, first)
        if at + period0 <= now then
          all = all - units
        elseif at + period <= now then
          moved = moved + units
        else
          break
        end
        first = first + 12
      end
      log, first = sub(log, first), 1
      if moved > 0 then
        if log ~= '' then newest, newest_units = unpack('<dI4', log, #log - 11) end
        if newest and newest >= now then
          log = sub(log, 1, -13) .. pack('<dI4', newest, newest_units + moved)
        else
          log = log .. pack('<dI4', now, moved)
        end
      end
    end
    if log ~= '' then newest, newest_units = unpack('<dI4', log, #log - 11) end
    if newest and not (newest >= 0 and newest <= 2^53) then return -3, 0, 0 end
  end

  local counting, used = first, all
  while counting < #log do
    local at, units = unpack('<dI4', log, counting)
    if at + period > now then break end
    counting, used = counting + 12, used - units
  end
  local left = limit - used
  if left < 0 then left = 0 end
  if cost <= left then
    if cost == 0 then
      local reset = newest and newest + period - now or 0
      return -1, left, reset > 0 and reset or 0
    end
    -- If the clock stands still or went back, use the newest instant seen, so that entries stay in order.
    local entries
    if newest and newest >= now then
      entries = sub(log, counting, -13) .. pack('<dI4', newest, newest_units + cost)
    else
      newest = now
      entries = sub(log, counting) .. pack('<dI4', now, cost)
    end
    local reset = newest + period - now
    left = left - cost
    local again
    if left < cost then
      -- The units taken now expire last.
      again = reset
      local must_go, place = used + cost + cost - limit, counting
      while place < #log do
        local at, units = unpack('<dI4', log, place)
        must_go, place = must_go - units, place + 12
        if must_go <= 0 then
          again = at + period - now
          break
        end
      end
    end
    local state = pack('<BddI4d', 20, period, limit, 0, used + cost) .. entries
    return -1, left, reset, state, reset, foreign, nil, again
  end

  local retry, reset = -2, 0
  -- This denial repairs future entries: they move to now.
  if counting < #log then reset = (newest < now and newest or now) + period - now end
  if cost <= limit then
    local must_go, place = used + cost - limit, counting
    while must_go > 0 and place < #log do
      local at, units = unpack('<dI4', log, place)
      must_go, place = must_go - units, place + 12
      retry = (at < now and at or now) + period - now
    end
  end
  if newest and newest > now then
    local last, moved = #log - 11, 0
    local at, units = newest, newest_units
    while at > now do
      moved, last = moved + units, last - 12
      if last < first then break end
      at, units = unpack('<dI4', log, last)
    end
    if last >= first and at == now then
      moved, last = moved + units, last - 12
    end
    log, first = sub(log, first, last + 11) .. pack('<dI4', now, moved), 1
  elseif not foreign then
    return retry, left, reset
  end
  if log == '' then return retry, left, reset, '', 0, foreign end
  return retry, left, reset, pack('<BddI4d', 20, period, limit, 0, all) .. sub(log, first), reset, foreign
end
