local KEYS, ARGV = KEYS, ARGV
local now, margin = 0, 0
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now, margin = unpack('<dd', ARGV[1])
end

local steps, out, checks = {}, { now, 0, 0, 0 }, #ARGV
-- The checks of a request of several, ten places each, and which enforced rule denied: its number, or -1 for several.
local group, size, denied = nil, 0, nil
local i, n = 2, 1
while i <= checks do
  local check = ARGV[i]
  local what, role, more, key, cost, rule, instead, alg, first, limit, third = unpack('<BBBHdHHBddI4', check)
  local step = steps[alg]
  if not step then
    step = step_of(alg)
    steps[alg] = step
  end

  local retry, left, reset, state, ttl, foreign = -1, 0, 0
  if what == 4 then
    call('DEL', KEYS[key])
  else
    -- An error is a table, for a value of another type. Of a string, `err` is a method that there is not.
    local raw = try('GET', KEYS[key])
    if raw and raw.err then
      retry = -3
    elseif what < 2 then
      retry, left, reset, state, ttl, foreign = step(raw, first, limit, third, now, cost)
      if foreign and retry ~= -1 and #check > 38 then
        -- A denial leaves a state with the plan that wrote it, if that one's limit is not smaller: cut to the limit of this
        -- one it would give away units of the larger, and who can choose between them would never run out. The plan that
        -- wrote it says when the units fit, and repairs it.
        local writer = sub(raw, 1, 21)
        for place = 39, #check, 21 do
          if sub(check, place, place + 20) == writer then
            local _, first, larger, third = unpack('<BddI4', writer)
            local later, _, later_reset, repaired, repaired_ttl =
              step(raw, first, larger, third, now, cost + larger - limit)
            -- It fits there only by a rounding; then there is nothing to repair, and nothing is taken.
            if later == -1 then
              state = nil
            else
              retry, reset, state, ttl = later, later_reset, repaired, repaired_ttl
            end
            break
          end
        end
      end
      if more == 1 or size > 0 or what == 1 or role > 0 then
        -- Several checks, or one that does not simply take: all are decided, then all that has to be is written.
        if role == 0 and (retry >= 0 or retry == -2) then
          if not denied or denied == rule then denied = rule else denied = -1 end
        end
        group = group or {}
        group[size + 1], group[size + 2], group[size + 3], group[size + 4] = step, raw, first, limit
        group[size + 5], group[size + 6], group[size + 7] = third, role, instead
        group[size + 8], group[size + 9], group[size + 10] = key, state or false, ttl
        size, state = size + 10, nil
      end
    elseif what == 3 then
      retry, left = step(raw, first, limit, third, now, 0)
      if cost > left then cost = left end
      if cost > 0 then retry, left, reset, state, ttl = step(raw, first, limit, third, now, cost) end
    elseif raw then
      retry, state, ttl = step_of(alg, true)(raw, first, limit, third, now, cost, unpack('<dd', check, 39))
    end
    if state then
      ttl = ttl + 999
      ttl = (ttl - ttl % 1000) / 1000 + margin
      if state == '' or ttl <= 0 then
        call('DEL', KEYS[key])
      elseif ttl < 2^53 then
        call('SET', KEYS[key], state, 'PX', format('%.0f', ttl))
      else
        -- Read from a value that only looked like ours.
        retry = -3
      end
    end
  end
  out[n + 1], out[n + 2], out[n + 3] = retry, left, reset
  n = n + 3
  i = i + 1

  if size > 0 and more == 0 then
    local reply = n - size / 10 * 3
    for place = 1, size, 10 do
      local role, state = group[place + 5], group[place + 8]
      if denied and out[reply + 1] == -1 then
        if role == 0 then
          -- It would have let the request pass, and keeps its units: its numbers are those before the take.
          local step, raw = group[place], group[place + 1]
          local _, left, reset = step(raw, group[place + 2], group[place + 3], group[place + 4], now, 0)
          out[reply + 2], out[reply + 3] = left, reset
          state = false
        elseif group[place + 6] ~= 65535 and group[place + 6] ~= denied then
          -- A shadow counts as if it were alone, or in the place of the rule that it replaces.
          state = false
        end
      end
      if state and what == 0 and role ~= 2 then
        local ttl = group[place + 9] + 999
        ttl = (ttl - ttl % 1000) / 1000 + margin
        local key = group[place + 7]
        if state == '' or ttl <= 0 then
          call('DEL', KEYS[key])
        elseif ttl < 2^53 then
          call('SET', KEYS[key], state, 'PX', format('%.0f', ttl))
        else
          out[reply + 1] = -3
        end
      end
      reply = reply + 3
    end
    size, denied = 0, nil
  end
end

-- In Lua 5.4 a number that was divided is a float, and stays one in a reply.
if math.type then
  for place = 1, n do out[place] = math.floor(out[place]) end
end
return out
