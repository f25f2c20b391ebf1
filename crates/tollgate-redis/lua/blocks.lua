-- Growing blocks, as in `block.rs` of tollgate-core.
--
-- Setting, in a check: '<I2dd', the denials that begin a block, within which µs they count, and the µs after which the level
-- is forgotten; '<d' for each time of a block; '<I2BB', how many settled requests count now, 1 if denials count, and the
-- number of times.
--
-- State, before that of the algorithm: '<BddBI2', 23, the time at which it is forgotten, the end of the last block, its level, and
-- the number of entries; then '<dI2' for each entry, oldest first: a time, and how many were counted then.
--
-- Counts `count` at `now`. Returns the state, the level of the block in force or 0, the µs until it ends, whether it has begun
-- now, how many count towards the next one, and whether the state is to be written.

return function(prefix, setting, now, count)
  local after, within, forget = unpack('<I2dd', setting)
  local times = (#setting - 22) / 8
  local function time_of(level)
    if level > times then level = times end
    return (unpack('<d', setting, 11 + 8 * level))
  end

  local forgotten_at, ends, level, entries = 0, 0, 0, ''
  if prefix then
    forgotten_at, ends, level = unpack('<ddB', prefix, 2)
    entries = sub(prefix, 21)
  end
  local changed = false
  if ends > now then
    local left, most = ends - now, time_of(level)
    -- A clock was set back, or the time is shorter now.
    if left > most then left, ends, forgotten_at, changed = most, now + most, now + most + forget, true end
    if changed then prefix = pack('<BddBI2', 23, forgotten_at, ends, level, #entries / 10) .. entries end
    return prefix, level, left, false, 0, changed
  end

  if forgotten_at <= now then ends, level, entries = 0, 0, '' end
  local counted, kept, place = 0, '', 1
  while place < #entries do
    local at, more = unpack('<dI2', entries, place)
    if at > now then at = now end
    if at + within > now then counted, kept = counted + more, kept .. pack('<dI2', at, more) end
    place = place + 10
  end
  if count == 0 then return prefix, 0, 0, false, counted, false end
  if ends + forget <= now then ends, level = 0, 0 end
  if counted + count >= after then
    level = level < times and level + 1 or times
    local left = time_of(level)
    ends = now + left
    return pack('<BddBI2', 23, ends + forget, ends, level, 0), level, left, true, 0, true
  end
  forgotten_at = now + within
  if level > 0 and ends + forget > forgotten_at then forgotten_at = ends + forget end
  kept = kept .. pack('<dI2', now, count)
  return pack('<BddBI2', 23, forgotten_at, ends, level, #kept / 10) .. kept, 0, 0, false, counted + count, true
end
