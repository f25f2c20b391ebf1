-- Ids of requests, as in `idempotency.rs` of tollgate-core.
--
-- State, before all else that a key has: '<BdH', 31, the time at which the last id ends, and the number of ids; then for each, oldest
-- first, its 8 bytes and '<dB': when the first request with it was admitted, and how many have repeated it at no cost.
--
-- For 'look' it returns whether a request with this id is a repeat that costs nothing. For 'admit' it returns the state after the
-- request. For 'forget', of a request that was admitted at `taken_at` and gets all of its units back: the state, and whether they
-- come back, or stay taken for a repeat. A state without ids is nil.

return function(doing, ids, id, now, period, free, taken_at)
  local ends, entries = 0, ''
  if ids then ends, entries = unpack('<d', ids, 2), sub(ids, 12) end
  if doing == 'admit' then
    local first = 1
    while first < #entries and unpack('<d', entries, first + 8) + period <= now do first = first + 17 end
    entries = sub(entries, first)
  end
  local place, at, repeats = 0, 0, 0
  repeat place = string.find(entries, id, place + 1, true) until not place or place % 17 == 1
  if place then at, repeats = unpack('<dB', entries, place + 8) end

  if doing == 'look' then return place and at + period > now and repeats < free end
  local rest = place and sub(entries, 1, place - 1) .. sub(entries, place + 17) or entries
  if doing == 'forget' then
    -- Nothing is known of its repeats any more.
    if taken_at + period <= now then return ids, false end
    -- A later one is of another request.
    if not place or at > taken_at or at + period <= now then return ids, true end
    if repeats > 0 then return ids, false end
    entries = rest
  elseif place and at + period > now then
    if repeats < free then repeats = repeats + 1 end
    entries = sub(entries, 1, place + 15) .. pack('<B', repeats) .. sub(entries, place + 17)
  else
    if #rest == 64 * 17 then rest = sub(rest, 18) end
    entries = rest .. id .. pack('<dB', now, 0)
    if now + period > ends then ends = now + period end
  end
  if entries == '' then return nil, true end
  return pack('<BdH', 31, ends, #entries / 17) .. entries, true
end
