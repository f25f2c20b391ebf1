local KEYS, ARGV = KEYS, ARGV
local now, margin, by_server = 0, 0, ARGV[1] == ''
if by_server then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now, margin = unpack('<dd', ARGV[1])
end

local steps, takes, out, checks = {}, {}, { now, 0, 0, 0 }, #ARGV
-- Whether anything was written.
local wrote = false
-- A request of several checks: thirteen fields for each check; and whether an enforced rule
-- denied.
local group, size, denied = nil, 0, false
-- Whether the previous request was granted, or denied by its only check for a time; the function of
-- `window_leases.lua`.
local granted, waits, window_leases = false, false, nil
-- Of a request whose rules wait: the checks of those rules by their place in the group, and when each fits by the negative
-- place; by when all of them fit, in µs after now, rounded up and down; and when the check at hand fits by its own quota.
local waiting, delay, delay_floor, due
-- How often a check still repeats, each time for the next key; whether it is a request of its own that takes units under
-- an enforced rule and has no further keys; and its state, if that was read.
local repeats, alone, read = 0, false, nil
-- Of rules that block keys: the function of `blocks.lua`; and of a request its checks by their place in the group.
local count_for_block, blocking = nil, nil
-- Of requests with an id: the function of `ids.lua`.
local ids_of = nil
-- Of rules with credits: the functions of `credits.lua`; and of a request its balances by their place in the group.
local open_balance, keep_balance, balances
local what, more, key, cost, alg, first, limit, third
local i, n = 2, 1

-- When all units of a state are back, for a check that takes nothing under another quota than the one that wrote it: nothing is
-- carried over, so they come back as under that one. Not where requests wait: their queue keeps its length.
local function reset_of(step, raw, first, limit, third, now, reset)
  if not raw then return reset end
  local kind, first0, limit0, third0 = unpack('<BddI4', raw)
  if kind > 23 then kind = kind - 8 end
  if kind < 17 or kind > 21 or (first0 == first and limit0 == limit and third0 == third) then return reset end
  if kind == 17 and #raw == 45 and unpack('<d', raw, 34) > 0 then return reset end
  local _, _, by_writer = step(raw, first0, limit0, third0, now, 0, 9)
  return by_writer
end

-- For how long a state is to live that is fresh after `reset` µs: by the quota that wrote it, too, and units on lease refill after
-- their lease has ended.
local function state_ttl(step, raw, whole, reset)
  if not raw then return 0 end
  local kind, first0, limit0, third0 = unpack('<BddI4', raw)
  if kind > 16 and kind < 22 or kind > 23 then
    local _, _, by_writer = step(raw, first0, limit0, third0, now, 0, 9)
    if kind == 26 and first0 >= 2^52 then by_writer = by_writer * 1.125 end
    if by_writer > reset then reset = by_writer end
  end
  if #whole == 49 then return reset + 2 * LIFE end
  -- A log has that length, too.
  return #whole == 53 and kind % 8 < 4 and first0 < 2^52 and reset + 2 * first0 or reset
end

while true do
  local is_decided = true
  while is_decided and (repeats > 0 or i <= checks) do
    if repeats > 0 then
      key, repeats = key + 1, repeats - 1
    else
      check = ARGV[i]
      what, role, more, key, cost, alg, first, limit, third = unpack('<BBBHdBddI4', check)
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
    id, ids_of = sub(check, place, place + 7), ids_of or step_of(31)
    period, free = unpack('<dB', check, place + 8)
  end
  -- Of a rule that blocks keys: its setting, how many count before the check, and whether denials count; and of any rule what its
  -- state has of blocks, and the rest of it.
  local setting, counts, denials_count, prefix, inner
  -- And what it has paid of a charge.
  local balance, failed, paid
  if role == 3 then
    role = 0
    if not open_balance then open_balance, keep_balance = step_of(30) end
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
    count_for_block = count_for_block or step_of(23)
  end
  if what == 4 and alg > 19 then
    local done = try('DEL', KEYS[key])
    if done == 0 or done == 1 then
      left, wrote = done, true
    else
      local code = refusal(done.err, wrote)
      if not code then return done end
      retry, left = -3, code
    end
  else
    -- `gone` is a key to delete once the state is written to another; `notify` what to report: 1 a new key, 2 the
    -- overflow bucket too.
    local raw, gone, notify
    if read ~= nil then
      raw, read = read, nil
    elseif what < 8 then
      raw = try('GET', KEYS[key])
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
        for place = 1, size, 13 do
          if group[place + 7] == key and group[place + 8] then raw = group[place + 8] end
        end
      end
    end
    -- A bucket of all clients blocks nobody, and knows no ids.
    if notify == 2 then setting, id = nil, nil end
    if raw and not raw.err and #raw > 10 and unpack('<B', raw) == 31 then
      local size = 11 + 17 * unpack('<H', raw, 10)
      if size <= #raw then
        ids, raw = sub(raw, 1, size), sub(raw, size + 1)
        if unpack('<d', ids, 2) <= now then ids = nil end
        if raw == '' then raw = false end
        notify = notify == 2 and notify or nil
      end
    end
    if raw and not raw.err and #raw > 19 and unpack('<B', raw) == 23 then
      local size = 20 + 10 * unpack('<I2', raw, 19)
      if size <= #raw then
        prefix, raw = sub(raw, 1, size), sub(raw, size + 1)
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
    if what == 4 then
      -- A reset keeps the leases and drops everything else.
      local _
      if alg == 17 and raw and #raw == 49 then
        _, _, _, state, ttl = step(raw, first, limit, third, now, 0, what)
      elseif leases then
        window_leases = window_leases or step_of(0)
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
    elseif what > 4 then
      if what == 7 and not (granted or waits and alg == 17) then
        retry = 0
      elseif alg == 17 then
        retry, left, reset, state, ttl = step(raw, first, limit, third, now, cost, what, granted)
      else
        window_leases = window_leases or step_of(0)
        retry, left, reset, state, ttl =
          window_leases(what, check, step, alg, raw, leases, first, limit, third, now, cost)
        if what > 5 then leases = nil end
      end
    elseif what < 2 then
      retry, left, reset, state, ttl, leaves, keeps, again = step(raw, first, limit, third, now, cost)
      if retry == -1 and left <= 0 and cost == 0 and alg > 16 and alg < 22 then
        -- When one unit would fit, by the quota that wrote the state if a denial leaves the state to it.
        local _, other
        again, _, _, _, _, other = step(raw, first, limit, third, now, 1)
        if other then
          local _, first0, limit0, third0 = unpack('<BddI4', raw)
          if alg == 17 or (limit0 >= limit and limit0 <= 2^53) then
            local later = step(raw, first0, limit0, third0, now, 1 + limit0 - limit, 9)
            if later ~= -1 then again = later end
          end
        end
      end
      if retry == -1 and cost == 0 and role ~= 2 and alg > 16 then reset = reset_of(step, raw, first, limit, third, now, reset) end
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
      local block
      if setting then
        block = { setting, denials_count }
        local level, ends, began, counted, changed
        prefix, level, ends, began, counted, changed = count_for_block(prefix, setting, now, what == 0 and counts or 0)
        block.prefix, block.changed, block.level, block.inner = prefix, changed, level, inner
        block.reset = reset
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
      if balance and (retry >= 0 or retry == -2) and not (block and block.level > 0) then
        if balance.units >= cost then
          balance.cost, retry = cost, -2^52 - (retry >= 0 and retry or 0)
        elseif balance.units > 0 then
          retry = retry >= 0 and retry + 2^52 or 2^53 - 1
        end
      end
      granted, waits = retry == -1 and what == 0, retry > 0 and what == 0
      if leases and state then state, leases = kept_with(state, leases, now, raw), nil end
      if more == 1 or size > 0 or what == 1 or role > 0 or alg == 16 or setting or id or balance then
        -- Several checks, or one that is not a plain take: decide all of them, then write.
        if prefix or block or ids or id then
          block = block or { prefix = prefix, inner = inner, reset = reset, level = 0 }
          block.ids, block.id, block.period, block.free, block.is_repeat = ids, id, period, free, is_repeat
          blocking = blocking or {}
          blocking[size + 1] = block
        end
        if balance then
          balances = balances or {}
          balances[size + 1] = balance
        end
        if alg == 16 and not (block and block.level > 0) then
          waiting = waiting or {}
          waiting[size + 1], waiting[-1 - size], due = check, due or retry, nil
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
          if cost > 0 and raw and #raw == 49 then waiting.not_before = true end
        end
        if role == 0 and (retry >= 0 or retry == -2) then
          denied = true
        end
        group = group or {}
        group[size + 1], group[size + 2], group[size + 3], group[size + 4] = step, raw, first, limit
        group[size + 5], group[size + 6], group[size + 7] = third, role, slots or false
        group[size + 8], group[size + 9], group[size + 10] = key, state or false, ttl
        group[size + 11], group[size + 12], group[size + 13] = gone or false, notify or false, n
        size, state, notify = size + 13, nil, nil
      end
    elseif what == 3 and alg == 17 and unpack('<d', check, 51) > 0 then
      retry, left, reset, state, ttl = step(raw, first, limit, third, now, cost, what, unpack('<d', check, 51))
    elseif what == 3 and alg > 16 and unpack('<d', check, 51) > 0 then
      window_leases = window_leases or step_of(0)
      retry, left, reset, state, ttl = window_leases(what, check, step, alg, raw, leases, first, limit, third, now, cost)
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
    if is_changed and not state and retry ~= -3 then
      -- The leases of a window are a part of it.
      local _
      if raw and not id then _, _, reset = step(raw, first, limit, third, now, 0) end
      state, ttl, leases, reset = inner or '', state_ttl(step, raw, inner, reset), nil, 0
    end
    if state then
      if leases then state = kept_with(state, leases, now, raw) end
      if prefix then
        local rest = unpack('<d', prefix, 2) - now
        state, keeps = prefix .. state, nil
        if rest > ttl then ttl = rest end
      end
      if ids then
        local rest = unpack('<d', ids, 2) - now
        state, keeps = ids .. state, nil
        if rest > ttl then ttl = rest end
      end
      ttl = ttl + 999
      ttl = (ttl - ttl % 1000) / 1000 + margin
      local done
      if state == '' or ttl <= 0 then
        done = try('DEL', KEYS[key])
        if done == 0 or done == 1 then done, wrote = nil, true end
      elseif ttl < 2^53 then
        if keeps and by_server and not gone then
          -- The time to live is right already. To set it again costs more than the rest of the write.
          done = try('SET', KEYS[key], state, 'KEEPTTL')
        else
          done = try('SET', KEYS[key], state, 'PX', format('%d', ttl))
        end
      else
        -- The value only looked like ours.
        retry, left, reset = -3, 0, 0
      end
      if done and done.err then
        -- This check takes nothing. Others still may.
        local code = refusal(done.err, wrote)
        if not code then return done end
        retry, left, reset, notify = -3, code, 0, nil
        granted, waits = false, false
      elseif retry ~= -3 then
        wrote = true
        if notify and done and not inner and not prefix then reset = -1 - reset end
        if gone then try('DEL', KEYS[gone]) end
      end
    end
    -- Only a query is told what is owed, and not of the overflow bucket.
    if left < -2^51 and what ~= 1 then left = 0 end
    if notify == 2 then left = -1 - left end
  end
  out[n + 1], out[n + 2], out[n + 3] = retry == -1 and again and -4 - again or retry, left, balance and what == 3 and (paid or 0) or reset
  n = n + numbers

  if size > 0 and more == 0 then
    if delay and waiting.not_before then
      denied = true
      for place = 1, size, 13 do
        local reply = group[place + 12]
        if out[reply + 1] <= -2^52 and waiting[place] then out[reply + 1] = -2^52 - out[reply + 1] end
      end
    end
    if denied or what == 1 then delay = nil end
    durable = false
    granted, waits = what == 0 and not denied and not delay, false
    if blocking and size == 13 and what == 0 and alg ~= 16 then
      waits = out[group[13] + 1] > 0 and blocking[1] and blocking[1].level == 0
    elseif balances and size == 13 and what == 0 then
      waits = out[group[13] + 1] > 0 and out[group[13] + 1] < 2^53 - 1
    end
    for place = 1, size, 13 do
      local reply = group[place + 12]
      local state, gone, notify = group[place + 8], group[place + 10], group[place + 11]
      local retry, block = out[reply + 1], blocking and blocking[place]
      local is_blocked = block and block[1] and block.level > 0
      local fits = (retry == -1 or retry < -3) and not is_blocked
      -- The step of an algorithm looks at both.
      role, check = group[place + 5], waiting and waiting[place] or check
      local units = delay and waiting[place] and unpack('<d', check, 6) or 0
      local balance = balances and balances[place]
      if balance and not balance.cost then balance = nil end
      if balance and (denied or delay) then
        -- It fits, and takes nothing.
        out[reply + 1] = retry < -2^52 and -4 - (-2^52 - retry) or -1
        balance, state = nil, false
      elseif units > 0 and retry ~= -2 and retry ~= -3 and waiting[-place] <= delay then
        -- It takes its place in the queue, and tells what was before it.
        local step, raw = group[place], group[place + 1]
        local rest
        rest, out[reply + 2], out[reply + 3], state, group[place + 9] =
          step(raw, group[place + 2], group[place + 3], group[place + 4], now, units, 8,
            unpack('<d', check, 51), delay_floor or 0)
        out[reply + 1] = rest - 2^53
      elseif (denied or delay) and fits then
        local slots = group[place + 6]
        if slots then
          -- Nothing runs, so it has no slots; what its process has in use is written.
          if state then
            local count = unpack('<I4', state, #state - 3)
            state = sub(state, 1, #state - 4) .. pack('<I4', count - slots)
            out[reply + 1], out[reply + 2] = -1, out[reply + 2] + slots
          end
        elseif role == 0 then
          -- This check fits, but the request is denied or waits: keep its units, and report the numbers before the take.
          local step, raw = group[place], group[place + 1]
          local _, left, reset, _, _, _, _, again =
            step(raw, group[place + 2], group[place + 3], group[place + 4], now, 0)
          if not (waiting and waiting[place]) then
            reset = reset_of(step, raw, group[place + 2], group[place + 3], group[place + 4], now, reset)
          end
          if left < -2^51 and what == 0 then left = 0 end
          out[reply + 2], out[reply + 3] = left, reset
          if left > 0 then out[reply + 1] = -1 elseif again then out[reply + 1] = -4 - again end
          state = false
        elseif delay then
          state = false
        end
      elseif delay then
        state = false
      end
      local fate = block and block[1] and out[reply + 1] or -3
      -- A cost that never fits counts towards no block, whatever the balance.
      if fate == 2^53 - 1 then fate = -2 end
      -- A rule that denies the request for want of units counts it. It is written with the state, and told if that is done.
      local level, ends, counted = 0, 0, nil
      if fate >= 0 and block.level == 0 and block[2] == 1 and what == 0 and (not delay or waiting[place]) then
        local _
        block.prefix, level, ends, _, counted, block.changed = count_for_block(block.prefix, block[1], now, 1)
      end
      if what == 0 and block and block.changed and not state then
        state = block.inner or ''
        group[place + 9] = state_ttl(group[place], group[place + 1], block.inner, block.reset)
      end
      if balance and what == 0 then
        granted = false
        local done = keep_balance(balance, balance.units - balance.cost, now, margin)
        if done.err then
          local code = refusal(done.err, wrote)
          if not code then return done end
          out[reply + 1], out[reply + 2], out[reply + 3] = -3, code, 0
          state, fits = false, false
        else
          wrote = true
        end
      end
      if block and block.id and what == 0 and fits and not delay and (role == 1 or not denied) then
        block.ids = ids_of('admit', block.ids, block.id, now, block.period, block.free)
        if not state then
          state = block.inner or ''
          group[place + 9] = state_ttl(group[place], group[place + 1], block.inner, block.reset)
        end
      end
      if state and what == 0 and role ~= 2 then
        if block and block.prefix then
          local rest = unpack('<d', block.prefix, 2) - now
          state = block.prefix .. state
          if rest > group[place + 9] then group[place + 9] = rest end
        end
        if block and block.ids then
          local rest = unpack('<d', block.ids, 2) - now
          state = block.ids .. state
          if rest > group[place + 9] then group[place + 9] = rest end
        end
        local ttl = group[place + 9] + 999
        ttl = (ttl - ttl % 1000) / 1000 + margin
        local key = group[place + 7]
        local done
        if state == '' or ttl <= 0 then
          done = try('DEL', KEYS[key])
          if done == 0 or done == 1 then done, wrote = nil, true end
        elseif ttl < 2^53 then
          done = try('SET', KEYS[key], state, 'PX', format('%d', ttl))
        else
          out[reply + 1], out[reply + 2], out[reply + 3] = -3, 0, 0
        end
        if done and done.err then
          local code = refusal(done.err, wrote)
          if not code then return done end
          -- A denial stays one that cannot be counted.
          if counted then counted = nil else out[reply + 1], out[reply + 2], out[reply + 3] = -3, code, 0 end
          notify = false
        elseif out[reply + 1] ~= -3 then
          wrote = true
          if notify and done and not group[place + 1] and not (block and block.inner) then
            out[reply + 3] = -1 - out[reply + 3]
          end
          if gone then try('DEL', KEYS[gone]) end
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
      if out[reply + 1] == -3 then granted = false elseif block and block.is_repeat and fits then out[reply + 1] = -2^53 + 2^33 end
      if notify == 2 then out[reply + 2] = out[reply + 2] < -2^51 and -1 or -1 - out[reply + 2] end
    end
    size, denied, waiting, delay, delay_floor, blocking, balances = 0, false, nil, nil, nil, nil, nil
  end
end

-- In Lua 5.4 a number that was divided is a float, and stays one in a reply.
if math.type then
  for place = 1, n do out[place] = math.floor(out[place]) end
end
return out
