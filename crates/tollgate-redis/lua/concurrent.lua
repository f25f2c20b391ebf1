-- Slots: at most so many requests of a key at once, as in `tests/reference/src/slot_grantor.rs`.
--
-- Quota: the term in µs, the limit. State: the number of the last grant (8 bytes), then 36 bytes for each owner of slots:
-- its id (8 bytes), the number of its last message, when it is forgotten, its term in µs, and its slots. The term is negative
-- while its requests wait: its last message wanted slots that did not fit.
--
-- A take carries a message behind the fields of the check, packed as 'c8dI4I4B': the owner; the number of the message;
-- the requests that run; those and what earlier messages in flight may still be granted; and 1 if the last number counts no
-- message in flight, or 2 if it is of a reservation, whose record says that no later one came first; and 4 more under a rule that
-- waits. The units are the slots wanted: 0 for a release or a renewal. A check without a message only looks.
--
-- Returns: 1. -4 - x: granted, and x is the number of the grant. 0: they do not fit. 1: a later message of the owner came
-- first, and nothing was done. 2. the slots that are free; negative: those in use above the limit. 3. µs until the owner is
-- forgotten: -1 - x if it was not known.
--
-- A process that crashes says nothing any more, and its slots are free after its term. A message that is lost does no
-- harm, because counts are absolute; one that is late neither, because messages are numbered. Therefore an owner is kept
-- until its term ends, also without slots.
--
-- A slot that goes back is wanted by the next request in the same message, so others that wait would never find one free. For the
-- time in which each of them asks at least once, in every half second, an owner leaves one to those that wait and have fewer.

if purpose then return function() return -1 end end

-- The last number of this call: a process finds what ends by its key and number, also where the key has states of several tenants.
local last = 0

return function(raw, term, limit, _, now, cost)
  local owner, seq, least, most, exact, may_wait
  if #check >= 59 and role < 2 then
    owner = sub(check, 35, 42)
    seq, least, most, exact = unpack('<dI4I4B', check, 43)
    may_wait, exact = exact >= 4, exact % 4
  end
  local fence, used, ends, kept, place = 0, 0, now, {}, 0
  local own_seq, own_until, own_term, own_count
  -- The least that another has which waits, and is still there.
  local fewest = math.huge
  if raw then
    if #raw < 29 or (#raw - 29) % 36 ~= 0 or unpack('<B', raw) ~= 22 then return -3, 0, 0 end
    fence = unpack('<d', raw, 22)
    for from = 30, #raw, 36 do
      local number, till, mark, count = unpack('<dddI4', raw, from + 8)
      local span = math.abs(mark)
      -- The clock went back. No owner is known for longer than its term.
      local is_cut = till > now + span
      if is_cut then till = now + span end
      if till > now then
        local id = sub(raw, from, from + 7)
        if id == owner then
          own_seq, own_until, own_term, own_count = number, till, span, count
        else
          used, place = used + count, place + 1
          kept[place] = is_cut and id .. pack('<dddI4', number, till, mark, count) or sub(raw, from, from + 35)
          if mark < 0 and till - span > now - 250000 then fewest = math.min(fewest, count) end
          if till > ends then ends = till end
        end
      end
    end
  end

  if not owner then
    -- It takes none: if another rule denies the request, its numbers stay.
    slots = 0
    -- A cost of 0 never blocks, also where more runs than the limit.
    return cost > limit and -2 or (cost == 0 or used + cost <= limit) and -1 or 0, limit - used, ends - now
  end
  if own_seq and seq <= own_seq and exact < 2 then
    return 1, limit - used - own_count, own_until - now
  end
  local count = own_count or 0
  if count > most then count = most end
  if count < least then count = least end
  -- A message that does not know what is in use must not keep alive what was lost.
  if exact > 0 or not own_seq then own_until, own_term = now + term, term end
  used = used + count
  local left_free = may_wait and (own_count or 0) > fewest and now % 500000 < 120000 and 1 or 0
  local retry, again, waits = 0, nil, false
  if cost == 0 then
    retry = -1
  elseif used + cost + left_free <= limit then
    retry, used, count = -1, used + cost, count + cost
    fence = math.max(now, fence + 1, last + 1)
    last, again = fence, fence
  elseif cost > limit then
    retry = -2
  else
    waits = may_wait
  end
  if own_until > ends then ends = own_until end
  -- If another rule denies the request, `decide.lua` takes its slots out of the end of the state.
  slots = cost
  kept[place + 1] = owner .. pack('<dddI4', seq, own_until, waits and -own_term or own_term, count)
  local left = own_until - now
  return retry, limit - used, own_seq and left or -1 - left,
    pack('<BddI4d', 22, term, limit, 0, fence) .. table.concat(kept), ends - now, nil, nil, again
end
