-- Decides the requests of a call, one after the other, each all or nothing. A check goes through these passes:
--
--   1  it is unpacked. A usual take that is a request of its own is decided and written at once, by the `take` of its algorithm
--   2  its state is read, under its names, with what stands before it: what is known of ids, and of blocks
--   3  it is decided, by its operation
--   4  of a request of its own it is written; of a request of several it is remembered
--   5  behind the last check of a request it is known whether the request takes: each check is written, or gives back
--
-- What is remembered of a check, in `group`:
--   step, raw             the function of its algorithm; the state as it was read, or false
--   first, limit, third   the numbers of its quota
--   role, slots           the role of its rule; the slots that it took
--   key, gone             the number of the key that it writes, and of the name that the state had
--   state, ttl            what it writes if the request takes, and after how many µs that is fresh
--   notify                1: tell of a new key; 2: it is decided against the overflow bucket, and tells of that
--   reply                 behind which place in `out` its numbers are
--   front                 what stands before its state, of a rule that blocks keys and of a check with an id: `prefix` of blocks, and
--                         whether it has `changed`; the `setting`, `counts_denials`, the `level` of the block in force; `ids`; the
--                         `id`, for how long it is known (`period`), how many may repeat it (`free`), whether it `is_repeat`; and the
--                         state without all that (`inner`), which is fresh after `reset` µs
--   balance               the balance of its key, with the `cost` that is taken there
--   check, fits_in        of a rule whose requests wait: the check, and after how many µs it fits

local KEYS, ARGV = KEYS, ARGV
local now, margin, by_server = 0, 0, ARGV[1] == ''
if by_server then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now, margin = unpack('<dd', ARGV[1])
end

local steps, takes, out, checks = {}, {}, { now, 0, 0, 0 }, #ARGV
-- Whether anything was written; and the functions of `write.lua`.
local wrote, next_unit, reset_of, state_ttl, write = false, nil, nil, nil, nil
-- A request of several checks, how many of them are remembered, and whether an enforced rule denied.
local group, size, denied = nil, 0, false
-- Whether the previous request was granted, or denied by its only check for a time; the function of
-- `window_leases.lua`.
local granted, waits, window_leases = false, false, nil
-- Of a request whose rules wait: by when all of their checks fit, in µs after now, rounded up and down; whether one of them cannot be
-- charged as of later; and when the check at hand fits by its own quota.
local delay, delay_floor, not_before, due
-- How often a check still repeats, each time for the next key; whether it is a request of its own that takes units under
-- an enforced rule and has no further keys; and its state, if that was read.
local repeats, alone, read = 0, false, nil
-- The functions of `blocks.lua`, `ids.lua` and `credits.lua`.
local count_for_block, ids_of, open_balance, keep_balance
local what, more, key, cost, alg, first, limit, third
local i, n = 2, 1

while true do
  -- 1: the next check, or as many usual takes as there are.
  local is_decided = true
  while is_decided and (repeats > 0 or i <= checks) do
    if repeats > 0 then
      key, repeats = key + 1, repeats - 1
    else
      check = ARGV[i]
      what, role, more, key, cost, alg, first, limit, third = unpack('<BBBHdBddI4', check)
      may_owe = what > 127
      if may_owe then what = what - 128 end
      slots, durable = nil, alg == 24
      if durable then alg = 18 end
      alone = what + role + more + size == 0 and cost > 0 and alg < 20
      i = i + 1
      local run = ARGV[i]
      if run and #run == 2 then
        repeats = unpack('<H', run)
        i = i + 1
      end
    end
    is_decided = false
    if alone then
      local take = takes[alg]
      if not take then
        take = step_of(alg, 'take')
        takes[alg] = take
      end
      local left_at
      left_at, read = take(key, key + repeats, first, limit, third, now, cost, by_server, margin, out, n)
      local taken = left_at - key
      if taken > 0 then
        granted, waits, wrote = true, false, true
        key, repeats, n = left_at, repeats - taken, n + 3 * taken
        is_decided = repeats < 0
        if is_decided then repeats = 0 end
      end
    end
  end
  if is_decided then break end
  local step = steps[alg]
  if not step then
    step = step_of(alg)
    steps[alg] = step
  end

  local retry, left, reset, state, ttl, leaves, keeps, again = -1, 0, 0
  -- Of a request with an id: the id, for how long it is known, and how many may repeat it; what the state has of ids, and whether it
  -- repeats one.
  local id, period, free, ids, is_repeat
  if more > 1 then
    more = more - 2
    local place = what % 8 == 2 and 51 or 35
    id, ids_of = sub(check, place, place + 7), ids_of or step_of('ids')
    period, free = unpack('<dB', check, place + 8)
  end
  -- Of a rule that blocks keys: its setting, how many count before the check, and whether denials count; and of any rule what its
  -- state has of blocks, and the rest of it.
  local setting, counts, denials_count, prefix, inner
  -- And what it has paid of a charge, or what of a refund stays taken for a repeat.
  local balance, failed, paid
  if role == 3 then
    role = 0
    if not open_balance then open_balance, keep_balance = step_of('credits') end
    balance, failed = open_balance(check, what % 32 >= 16, now)
    check = sub(check, 1, #check - 4)
  end
  local numbers = what > 63 and 6 or 3
  if what > 63 then
    what = what - 64
    local last, times = what > 7 and #check - 6 or #check, nil
    counts, denials_count, times = unpack('<I2BB', check, last - 3)
    setting = sub(check, last - 21 - 8 * times, last)
    out[n + 4], out[n + 5], out[n + 6] = 0, 0, 0
    count_for_block = count_for_block or step_of('blocks')
  end
  -- 2: its state. `gone` is a key to delete once the state is written to another; `notify` what to report: 1 a new key, 2 the
  -- overflow bucket too.
  local raw, gone, notify
  -- A reset that keeps nothing of it does not read it: a log may be long.
  local is_dropped = what == 4 and alg > 19
  if read ~= nil then
    raw, read = read, nil
  elseif what < 8 then
    raw = not is_dropped and try('GET', KEYS[key])
  else
    local other, overflow, overflow_other = unpack('<HHH', check, #check - 5)
    local moves = what % 32 >= 16
    notify = what >= 32 and 1
    what = what % 8
    if what > 1 and overflow > 0 then
      -- Units that would be fresh by now were counted in a state of their own, which has expired.
      local _, fresh_at = unpack('<dd', check, 35)
      if fresh_at <= now then overflow = 0 end
    end
    repeat
      raw = try('GET', KEYS[key])
      if not raw and other > 0 then
        raw = try('GET', KEYS[other])
        if not moves then key = other elseif raw then gone = other end
      end
      local again = not raw and overflow > 0
      if again then
        key, other, overflow, notify = overflow, overflow_other, 0, notify and 2
      end
    until not again
    if notify == 2 then
      -- An earlier check of this request may have taken from the same overflow bucket.
      for place = 1, size do
        if group[place].key == key and group[place].state then raw = group[place].state end
      end
    end
  end
  -- A bucket of all clients blocks nobody, and knows no ids.
  if notify == 2 then setting, id = nil, nil end
  if raw and not raw.err and #raw > 10 and unpack('<B', raw) == 31 then
    local length = 11 + 17 * unpack('<H', raw, 10)
    if length <= #raw then
      ids, raw = sub(raw, 1, length), sub(raw, length + 1)
      if unpack('<d', ids, 2) <= now then ids = nil end
      if raw == '' then raw = false end
      notify = notify == 2 and notify or nil
    end
  end
  if raw and not raw.err and #raw > 19 and unpack('<B', raw) == 23 then
    local length = 20 + 10 * unpack('<I2', raw, 19)
    if length <= #raw then
      prefix, raw = sub(raw, 1, length), sub(raw, length + 1)
      -- Where the rule does not block any more.
      if not setting and unpack('<d', prefix, 2) <= now then prefix = nil end
      if raw == '' then raw = false end
    end
  end
  inner = raw
  if failed then raw = failed end
  if id and what < 2 and ids_of('look', ids, id, now, period, free) then is_repeat, cost = true, 0 end
  -- Whether what stands before the state has changed, and has to be written.
  local is_changed = false
  -- The leases of a window follow its state.
  local leases
  if raw and #raw == 53 and (alg == 18 or alg == 19) then raw, leases = sub(raw, 1, 37), sub(raw, 38) end
  if balance and what == 3 and not (raw and raw.err) then
    -- A charge is taken from there when nothing is left of the quota.
    local fate, left = step(raw, first, limit, third, now, 0)
    local pays = fate == -3 and 0 or math.min(cost - math.max(left, 0), balance.units)
    local done = pays > 0 and keep_balance(balance, balance.units - pays, now, margin)
    if done and done.err then raw = done elseif done then cost, wrote, paid = cost - pays, true, pays end
  end
  -- 3: the decision.
  if is_dropped then
    local done = try('DEL', KEYS[key])
    if done == 0 or done == 1 then
      left, wrote = done, true
    else
      local code = refusal(done.err, wrote)
      if not code then return done end
      retry, left = -3, code
    end
  elseif what == 4 then
    -- A reset keeps the leases and drops everything else.
    local _
    if alg == 17 and raw and #raw == 49 then
      _, _, _, state, ttl = step(raw, first, limit, third, now, 0, what)
    elseif leases then
      window_leases = window_leases or step_of('window leases')
      _, _, _, state, ttl = window_leases(what, check, step, alg, raw, leases, first, limit, third, now, cost)
    end
    state, ttl, leases, left, prefix, ids = state or '', ttl or 0, nil, (raw or prefix or ids) and 1 or 0, nil, nil
  -- A failed GET returns a table with `err`. Of a string, `err` is nil.
  elseif raw and raw.err then
    retry = -3
    if not string.find(raw.err, 'WRONGTYPE', 1, true) then
      -- The server refused the read, as for a user without the permission.
      local code = refusal(raw.err, wrote)
      if not code then return raw end
      retry, left = -3, code
    end
  elseif what > 4 or what == 3 and alg > 16 and unpack('<d', check, 51) > 0 then
    if what == 7 and not (granted or waits and alg == 17) then
      retry = 0
    elseif alg == 17 then
      retry, left, reset, state, ttl = step(raw, first, limit, third, now, cost, what, what == 3 and unpack('<d', check, 51) or granted)
    else
      window_leases = window_leases or step_of('window leases')
      retry, left, reset, state, ttl =
        window_leases(what, check, step, alg, raw, leases, first, limit, third, now, cost)
      if what > 5 then leases = nil end
    end
  elseif what < 2 then
    retry, left, reset, state, ttl, leaves, keeps, again = step(raw, first, limit, third, now, cost)
    if retry == -1 and cost == 0 and alg < 22 then
      if not write then next_unit, reset_of, state_ttl, write = step_of('write') end
      -- Before its requests waited, a rule may have owed units.
      if left == 0 or left < 0 and alg > 16 then again = next_unit(step, alg, raw, first, limit, third, now) end
      if role ~= 2 and alg > 16 then reset = reset_of(step, raw, first, limit, third, now, reset) end
    end
    if leaves and retry ~= -1 then
      -- A denial leaves the state to the quota that wrote it. Cut to this smaller limit, it would give away units of
      -- the larger one, and a client that alternates between the two quotas would never run out. The quota that wrote
      -- the state says when the units fit, and repairs it.
      local _, first0, limit0, third0 = unpack('<BddI4', raw)
      -- A bucket has compared the limits itself.
      if alg < 18 or (limit0 >= limit and limit0 <= 2^53) then
        local later, _, later_reset, repaired, repaired_ttl =
          step(raw, first0, limit0, third0, now, cost + limit0 - limit, 9)
        -- It fits there only through rounding, or for the burst that is larger here: nothing is taken.
        if later == -1 then
          state = cost + limit0 <= limit and repaired
          ttl = repaired_ttl
        else
          -- Requests that wait do so by their own quota. A shadow is denied by the one that wrote the state, too.
          if again then due = retry end
          if not again or role > 0 then retry = later end
          reset, state, ttl = later_reset, repaired, repaired_ttl
        end
      end
    end
    local front
    if setting or prefix or ids or id then
      front = { setting = setting, counts_denials = denials_count == 1, level = 0, inner = inner, reset = reset,
        ids = ids, id = id, period = period, free = free, is_repeat = is_repeat }
    end
    if setting then
      local level, ends, began, counted
      prefix, level, ends, began, counted, front.changed = count_for_block(prefix, setting, now, 0)
      front.level = level
      out[n + 4], out[n + 5] = ends, counted
      if level > 0 then
        -- Denied until both the block and the quota let it pass. A cost of 0 learns that nothing is left.
        out[n + 5] = -2 * level - (began and 1 or 0)
        if cost == 0 and not is_repeat then
          if not again or ends > again then again = ends end
        elseif retry == -1 or retry >= 0 and retry < ends then
          retry, again = ends, nil
        else
          again = nil
        end
        left, reset, state, leaves, due = 0, ends, nil, nil, nil
      end
    end
    if balance and (retry >= 0 or retry == -2) and not (front and front.level > 0) then
      if balance.units >= cost then
        balance.cost, retry = cost, -2^52 - (retry >= 0 and retry or 0)
      elseif balance.units > 0 then
        retry = retry >= 0 and retry + 2^52 or 2^53 - 1
      end
    end
    granted, waits = retry == -1 and what == 0, retry > 0 and what == 0
    if leases and state then state, leases = kept_with(state, leases, now, raw), nil end
    -- 4: one of several checks, or one that is not a plain take, is remembered.
    if more == 1 or size > 0 or what == 1 or role > 0 or alg == 16 or setting or id or balance then
      if front then front.prefix = prefix end
      local entry = { step = step, raw = raw, first = first, limit = limit, third = third, role = role, slots = slots, key = key,
        gone = gone, state = state, ttl = ttl, notify = notify, reply = n, front = front, balance = balance }
      group, size = group or {}, size + 1
      group[size] = entry
      if alg == 16 and not (front and front.level > 0) then
        entry.check, entry.fits_in, due = check, due or retry, nil
        if role == 0 and retry >= 0 and again then
          local patience = unpack('<d', check, 35)
          if retry <= patience then
            if retry > (delay or 0) then delay = retry end
            if again > (delay_floor or 0) then delay_floor = again end
            retry = -2^52 - retry
          else
            retry = retry - patience + (leaves and 2^52 or 0)
          end
        end
        -- While leases from before its requests waited are out, it cannot be charged as of later.
        not_before = not_before or cost > 0 and raw and #raw == 49
      end
      denied = denied or role == 0 and (retry >= 0 or retry == -2)
      state, notify = nil, nil
    end
  elseif what == 3 then
    retry, left = step(raw, first, limit, third, now, 0)
    if cost > left then cost = left end
    if cost > 0 then retry, left, reset, state, ttl = step(raw, first, limit, third, now, cost) end
  else
    local is_back = true
    if id then
      local before = ids
      -- Its units were taken at that time.
      ids, is_back = ids_of('forget', ids, id, now, period, free, (unpack('<d', check, 35)))
      is_changed = ids ~= before
      if not is_back then paid = cost end
    end
    if balance then
      -- It comes back there, unless the balance has ended.
      local units = math.min(balance.units + cost, 999999999999999)
      local done = is_back and balance.ends > now and keep_balance(balance, units, now, margin)
      if done and done.err then
        local code = refusal(done.err, wrote)
        if not code then return done end
        retry, left = -3, code
      elseif done then
        wrote = true
      end
    elseif raw and is_back then
      -- What lapses: units of a queue with others behind them.
      retry, state, ttl, left = step_of(alg, 'refund')(raw, first, limit, third, now, cost, unpack('<dd', check, 35))
      left = retry == -1 and left or 0
    end
  end
  if setting and retry ~= -3 and (what == 2 or what == 3) then
    local level, ends, began, _, changed
    prefix, level, ends, began, _, changed = count_for_block(prefix, setting, now, counts)
    if began then out[n + 4], out[n + 5] = ends, -2 * level - 1 end
    is_changed = is_changed or changed
  end
  if (state or is_changed) and not write then next_unit, reset_of, state_ttl, write = step_of('write') end
  if is_changed and not state and retry ~= -3 then
    -- The leases of a window are a part of it.
    local _
    if raw and not id then _, _, reset = step(raw, first, limit, third, now, 0) end
    state, ttl, leases, reset = inner or '', state_ttl(step, raw, inner, reset, now), nil, 0
  end
  -- 4: a request of its own is written.
  if state then
    if leases then state = kept_with(state, leases, now, raw) end
    local failed, is_set = write(key, gone, state, ttl, prefix, ids, keeps and by_server, now, margin, wrote)
    if failed then
      if type(failed) == 'table' then return failed end
      -- This check takes nothing. Others still may.
      retry, left, reset, notify, granted, waits = -3, failed, 0, nil, false, false
    else
      wrote = true
      if notify and is_set and not inner and not prefix then reset = -1 - reset end
    end
  end
  -- Only a query is told what is owed, and not of the overflow bucket.
  if left < -2^51 and what ~= 1 then left = 0 end
  if notify == 2 then left = -1 - left end
  out[n + 1], out[n + 2], out[n + 3] = retry == -1 and again and -4 - again or retry, left, paid or balance and what == 3 and 0 or reset
  n = n + numbers

  -- 5: the request is whole.
  if size > 0 and more == 0 then
    if not write then next_unit, reset_of, state_ttl, write = step_of('write') end
    if delay and not_before then
      denied = true
      for place = 1, size do
        local reply = group[place].reply
        if out[reply + 1] <= -2^52 and group[place].check then out[reply + 1] = -2^52 - out[reply + 1] end
      end
    end
    if denied or what == 1 then delay = nil end
    durable = false
    granted, waits = what == 0 and not denied and not delay, false
    local only = size == 1 and what == 0 and group[1]
    if only and only.front and alg ~= 16 then
      waits = out[only.reply + 1] > 0 and only.front.level == 0
    elseif only and only.balance then
      waits = out[only.reply + 1] > 0 and out[only.reply + 1] < 2^53 - 1
    end
    for place = 1, size do
      local entry = group[place]
      local reply, step, raw, first, limit, third = entry.reply, entry.step, entry.raw, entry.first, entry.limit, entry.third
      local state, ttl, notify, front, balance = entry.state, entry.ttl, entry.notify, entry.front, entry.balance
      local retry = out[reply + 1]
      local fits = (retry == -1 or retry < -3) and not (front and front.level > 0)
      -- The step of an algorithm looks at both.
      role, check = entry.role, entry.check or check
      local units = delay and entry.check and unpack('<d', check, 6) or 0
      if balance and not balance.cost then balance = nil end
      if balance and (denied or delay) then
        -- It fits, and takes nothing.
        out[reply + 1] = retry < -2^52 and -4 - (-2^52 - retry) or -1
        balance, state = nil, nil
      elseif units > 0 and retry ~= -2 and retry ~= -3 and entry.fits_in <= delay then
        -- It takes its place in the queue, and tells what was before it.
        local rest
        rest, out[reply + 2], out[reply + 3], state, ttl =
          step(raw, first, limit, third, now, units, 8, unpack('<d', check, 51), delay_floor or 0)
        out[reply + 1] = rest - 2^53
      elseif (denied or delay) and fits then
        local slots = entry.slots
        if slots then
          -- Nothing runs, so it has no slots; what its process has in use is written.
          if state then
            local count = unpack('<I4', state, #state - 3)
            state = sub(state, 1, #state - 4) .. pack('<I4', count - slots)
            out[reply + 1], out[reply + 2] = -1, out[reply + 2] + slots
          end
        elseif role == 0 then
          -- This check fits, but the request is denied or waits: keep its units, and report the numbers before the take.
          local _, left, reset = step(raw, first, limit, third, now, 0)
          if not entry.check then reset = reset_of(step, raw, first, limit, third, now, reset) end
          out[reply + 2], out[reply + 3] = left < -2^51 and what == 0 and 0 or left, reset
          if left > 0 then
            out[reply + 1] = -1
          elseif left == 0 and entry.check then
            out[reply + 1] = -4 - next_unit(step, 16, raw, first, limit, third, now)
          end
          state = nil
        elseif delay then
          state = nil
        end
      elseif delay then
        state = nil
      end
      local fate = front and front.setting and out[reply + 1] or -3
      -- A cost that never fits counts towards no block, whatever the balance.
      if fate == 2^53 - 1 then fate = -2 end
      -- A rule that denies the request for want of units counts it. It is written with the state, and told if that is done.
      local level, ends, counted = 0, 0, nil
      if fate >= 0 and front.level == 0 and front.counts_denials and what == 0 and (not delay or entry.check) then
        local _
        front.prefix, level, ends, _, counted, front.changed = count_for_block(front.prefix, front.setting, now, 1)
      end
      local is_front_written = front and front.changed
      if balance and what == 0 then
        granted = false
        local done = keep_balance(balance, balance.units - balance.cost, now, margin)
        if done.err then
          local code = refusal(done.err, wrote)
          if not code then return done end
          out[reply + 1], out[reply + 2], out[reply + 3] = -3, code, 0
          state, fits, is_front_written = nil, false, false
        else
          wrote = true
        end
      end
      if front and front.id and what == 0 and fits and not delay and (role == 1 or not denied) then
        front.ids, is_front_written = ids_of('admit', front.ids, front.id, now, front.period, front.free), true
      end
      if is_front_written and not state then
        state, ttl = front.inner or '', state_ttl(step, raw, front.inner, front.reset, now)
      end
      if state and what == 0 and role ~= 2 then
        local failed, is_set =
          write(entry.key, out[reply + 1] ~= -3 and entry.gone, state, ttl, front and front.prefix, front and front.ids, false, now, margin, wrote)
        if failed then
          if type(failed) == 'table' then return failed end
          -- A denial stays one that cannot be counted.
          if counted then counted = nil else out[reply + 1], out[reply + 2], out[reply + 3] = -3, failed, 0 end
          notify = nil
        else
          wrote = true
          if notify and is_set and not raw and not (front and front.inner) then out[reply + 3] = -1 - out[reply + 3] end
        end
      end
      if counted then
        out[reply + 4], out[reply + 5] = ends, level > 0 and -2 * level - 1 or counted
        if level > 0 then
          if fate >= 2^52 then fate = fate - 2^52 end
          out[reply + 1], out[reply + 2], out[reply + 3] = fate > ends and fate or ends, 0, ends
          waits = false
        end
      end
      if out[reply + 1] == -3 then granted = false elseif front and front.is_repeat and fits then out[reply + 1] = -2^53 + 2^33 end
      if notify == 2 then out[reply + 2] = out[reply + 2] < -2^51 and -1 or -1 - out[reply + 2] end
    end
    size, denied, delay, delay_floor, not_before = 0, false, nil, nil, nil
  end
end

-- In Lua 5.4 a number that was divided is a float, and stays one in a reply.
if math.type then
  for place = 1, n do out[place] = math.floor(out[place]) end
end
return out
