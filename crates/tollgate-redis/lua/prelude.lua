-- tollgate: decides requests about rate limits, each all or nothing.
--
-- A call carries one or several requests. They are decided in order, each on its own, at the same time. A request has
-- one or several checks: the script decides all of them first, and then writes. A denied request takes nothing. It
-- writes all the same: what its shadows take, what counts towards a block, the slots that its process reports, and a state that
-- lies in the future, which it repairs.
--
-- KEYS     one per rule and subject; a check refers to them by number. Requests of a call may share keys. All further keys
--          of a check are listed here too: the other name of its state, and the overflow bucket, which counts clients that
--          may not create states of their own.
--
-- ARGV[1]  the time: '' for this server's clock, or '<dd': the caller's time in µs since the epoch, and a margin in ms that
--          is added to each time to live, for clocks that differ.
-- ARGV[i]  a check, packed as '<BBBHdBddI4':
--          B   the operation: 0 take; 1 query, which takes nothing; 2 refund; 3 take as many units as are left, or may be owed; 4 reset,
--              which keeps the leases; 5 debit: take even if the units do not fit; 6 return a lease; 7 grant a lease if
--              the request before it was granted, or a scheduled lease if that has one check and was denied.
--              Plus flags. For all but 4: 8 the check has further keys; 16 when the state is written, move it from its
--              other name. For 0 to 3: 32 report new keys; 64 the rule blocks keys; for 0 and 1: 128 it may owe
--              units.
--          B   the role of the rule: 0 enforced, 1 shadow, 2 a threshold (read, never written); for 0 to 3 also 3, enforced, with the
--              balance of the key: see `credits.lua`. A refund goes there alone.
--          B   1 if the next check belongs to the same request, 0 if this is its last check; plus 2: the check has an id
--          H   the key: KEYS[H]
--          d   units; for 6 the size of the lease; for 7 the units wanted for a tracked lease
--          B d d I4  the quota: the algorithm, its first number, its limit, its third number
--              17 token bucket, GCRA, leaky bucket: n, burst, d; one unit takes n/d µs, in lowest terms
--              16 the same of a rule whose requests wait
--              18 fixed window: period in µs, limit, 0
--              19 sliding window of two counters: period in µs, limit, resolution in µs
--              20 sliding log: period in µs, limit, 0
--              21 sliding window in sub-buckets: width of a sub-bucket in µs, limit, number of sub-buckets
--              24 a fixed window of a durable rule, for 0 and 3 only: see `calendar.lua`
--              22 slots: term in µs, limit, 0. A take has a message behind these fields, and a reply of its own: see
--              `concurrent.lua`. A request that is denied still says what its process has in use.
--          then for 0 and 1 of algorithm 16, '<ddd': for how long the request waits at most, 0, and for how long requests of
--          the rule do, in µs.
--          then for 2 and 3, '<dd': the time at which the units were taken, and the time at which the state would have been
--          fresh (for 3, too: with an overflow bucket, units that are not fresh yet, and have no state of their own, were taken
--          from there). For 3, '<d' behind them: how many units may be owed, 0 for none. For algorithm 16, '<d' in that place: for
--          how long requests of the rule wait at most; and '<dd': the state before the units were taken, -1 where that is not known.
--          for 6, '<dd': the units left (in a window with those of earlier leases that were returned later), and the
--          generation that the grant returned;
--          for 7, '<dddd': the most units that may be on lease; the units wanted for a scheduled lease; the horizon in µs
--          within which all units taken must have refilled; and the level at or below which scheduling starts.
--          then, of a check with an id, for 0 and 1 behind the '<BBBHdBddI4', and for 2 if all units come back behind the '<dd': its 8
--          bytes, and '<dB', for how many µs it is known, and how many may repeat it at no cost. See `ids.lua`.
--          then for algorithm 24, '<H': KEYS[H] says since when the server has its states; and for 0, '<d': what the caller knows to be
--          used in the present window, which a state that is not there begins with; -1 if it does not know.
--          and with 64, then, the setting of the block: see `blocks.lua`.
--          and with 8, then, '<HHH': the other name of the state, the overflow bucket, the overflow bucket's other name;
--          0: none. A state that is under neither name is read and written in the overflow bucket, if there is one.
--          Otherwise a new state is written under the first name if states move, and under the other name if they stay.
--          and with the role 3, then, '<HH': the key of the balance, and its other name or 0.
--          For 0 and 1, of a request of one check, without flags: an argument of two bytes behind it, '<H', is how often the
--          check repeats, each time for the next key. Each repetition is a request of its own.
--          Operations 2 to 7 are requests of one check. The caller folds checks on one state into one, with the sum of
--          their costs.
--
-- Returns integers: the time in µs, then three numbers for each check:
--          1. -1 fits; -2 never fits; -3 nothing was done for this check. From 0 up: it does not fit, and would after that
--             many µs. From -4 down: it fits and leaves less than its units; they fit again after -4 - x µs (for 0 units
--             with nothing left: one unit does). Of algorithm 16 also: from 2^52 up: it does not fit, and would after x - 2^52
--             µs; the state is of another quota. With a balance that is too small from 2^52 up, too, and 2^53 - 1 for never. From -2^52
--             down: with a balance, it fits there, and fits the quota after -2^52 - x µs, 0 for never; for 1, it fits after -2^52 - x µs,
--             for which it waits. From -2^53 + 2^33: it repeats a request with its id, and fits at no cost. From
--             -2^53 up: the request waits. It has taken its units, and behind this and the second number, -2^53 + x, is the
--             state before: the arrival time and its remainder x. The request starts when all these states let it.
--          2. units left: after the take if the request takes, otherwise at present. For 1 and no units, -2^52 - x: x are owed. For 4: 1
--             if there was a value. For 2 of algorithm 16, and 3 of a rule with debt: the units that have lapsed. After -3, the reason: 0 the value of the key is not ours; or the server refuses a command of this check, and may
--             accept those of others: 1 out of memory, 2 it cannot save, 3 too few replicas, 4 the user lacks the
--             permission, 5 another reason. 6: the server has lost its states since this window of a durable rule began, and has none
--             of the key. 7: its time lies outside of the windows of a calendar that the caller has brought.
--          3. µs until the state equals a fresh one; after a take, without the units on lease.
--          For 7: 0 no lease, 1 a tracked lease, 2 a scheduled lease, or -3; its units; then its generation or window, or
--          for a scheduled lease the µs after which its units start to refill.
--          A check of a blocked key does not fit before the end of the block; 2. is 0 and 3. the µs until that end. With flag 64
--          three numbers more: the µs until the end of the block; how many count towards the next one, or -2 · level of the block in
--          force, less 1 if it has begun now; and 0.
--          For a check with flag 32 that was not answered -3: units left become -1 - units where they are those of the
--          overflow bucket, and µs become -1 - µs where a key was created.
--
-- A state is a string: the 21 bytes of the quota that wrote it, whose first byte is also the version of the format;
-- then what its algorithm counts; then the units on lease, if there are any. Of a key that was counted towards a block, what
-- `blocks.lua` has of it stands before all that, and before that the ids of its requests (`ids.lua`). It expires when it equals a fresh state. A
-- quota that finds the state of another quota converts it. Most denials leave such a state as it is: until units are
-- taken, it refills as the quota that wrote it says.
--
-- Ten units a second, ten at once, one unit, by the server's clock (redis-cli reads \x.. in a line of its input):
--   EVALSHA <sha> 1 k "" "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xf0\x3f\x11\x00\x00\x00\x00\x00\x6a\xf8\x40\x00\x00\x00\x00\x00\x00\x24\x40\x01\x00\x00\x00"
--   1) (integer) 1763740800123456  2) (integer) -1  3) (integer) 9  4) (integer) 100000
--
-- No shebang, and nothing that Lua 5.1 and 5.4 do not share, so that servers before Redis 7 and Dragonfly run it. Each
-- call creates the functions that it needs. An algorithm is therefore created when a check needs it, and functions are
-- few.

local codec = struct or string
local pack, unpack, sub, format = codec.pack, codec.unpack, string.sub, string.format
local call, try = redis.call, redis.pcall

-- The length of a lease generation, in µs: 10 s. A lease carries the number of the generation that granted it, and is
-- known until the end of the next one.
local LIFE = 10000000

-- The code in a reply for a command that the server refused. Nil for an error that concerns every check, such as
-- READONLY: the call then returns the error itself, unless it wrote something already, which an error would hide.
local function refusal(err, wrote)
  local function says(words) return string.find(err, words, 1, true) end
  if says('OOM') then return 1 end
  if says('MISCONF') then return 2 end
  if says('NOREPLICAS') then return 3 end
  -- The texts of Valkey and of Redis.
  if says('NOPERM') or says('ACL failure') or says('user executing the script') then return 4 end
  if wrote then return 5 end
end

-- The size of a tracked lease: at most a quarter of the units left, and of what may still go on lease. A lease of one
-- unit would save no call.
local function lease_size(wanted, level, room)
  local units = (level - level % 4) / 4
  if room < 1 then return 0 end
  room = (room + 3 - (room + 3) % 4) / 4
  if room < units then units = room end
  if wanted < units then units = wanted end
  return units < 2 and 0 or units
end

-- Appends the leases of a window to its state, unless that window is over. If the state was converted to windows of
-- another length, the leases belong to the present one of those.
local function kept_with(state, leases, now, raw)
  if state == '' then return state end
  local number, units = unpack('<dd', leases)
  local before, period = unpack('<d', raw, 2), unpack('<d', state, 2)
  -- A window of a calendar has the number of its last microsecond. In that of another one, units stay used.
  if period >= 2^52 or before >= 2^52 then
    local is_same = before >= 2^52 and period >= 2^52 and before % 2^18 == period % 2^18
    return is_same and number + 1 == unpack('<d', state, 22) and state .. leases or state
  end
  if number ~= (now - now % before) / before then return state end
  if before ~= period then leases = pack('<dd', (now - now % period) / period, units) end
  return state .. leases
end

-- ⌊a · b / d⌋ and the remainder, exact for products beyond 53 bits: a, b < 2^53, d < 2^50.
local function muldiv(a, b, d)
  local part = a % d
  local whole = (a - part) / d
  local bit = 1
  while bit * 2 <= b do bit = bit * 2 end
  local quotient, rest = 0, 0
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if b >= bit then b, quotient, rest = b - bit, quotient + whole, rest + part end
    if rest >= d then quotient, rest = quotient + 1, rest - d end
    if rest >= d then quotient, rest = quotient + 1, rest - d end
    bit = bit / 2
  end
  return quotient, rest
end

-- An algorithm is a function of (raw, three numbers of the quota, now, cost). `raw` is the state as it was read, or false.
-- It returns
--   the three numbers of the reply;
--   the state to write ('' deletes it) and the µs until it is fresh, if there is something to write: the units taken if
--   they fit, a repair if not;
--   whether another quota wrote `raw` and a denial may leave it so;
--   whether the new state is fresh at the same time as `raw` would have been;
--   and, if units were taken and as many do not fit again at once, the µs after which they do.
--
-- `step_of(number, purpose)` gives it; and by the name of a file that is no algorithm, the functions of that file.
--
-- For the purpose 'refund' it is a function of (raw, the three numbers, now, cost, at, fresh_at), and returns -1 or -3,
-- then the state to write and its µs.
--
-- For the purpose 'take' it is a function of (first key, last key, the three numbers, now, cost, by_server, margin, out,
-- place): it takes the units of each of these keys in the usual case, in few steps, with one read and one write, and
-- appends to `out` from `place` on. The usual case: there is no state, or one of this quota without leases, and the
-- units fit. It returns the first key that it did not decide, for which it wrote nothing, and its state if it read that.
-- While units of a window are counted already, its take writes the counter alone, and keeps the time to live.

-- The check at hand, its role, the slots that it took, and whether its rule is durable, and may owe units.
local check, role, slots, durable, may_owe
