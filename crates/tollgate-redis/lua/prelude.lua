-- tollgate: decides requests about rate limits, each all or nothing.
--
-- One call carries one or several requests, one after the other; each is decided and isolated on its own, in order and
-- at one time. A request is one or several checks: first all are decided, then all that has to be is written. Nothing is
-- written on a denial but repairs of states that lie in the future.
--
-- KEYS     one per rule and subject; a check says which. Requests of one call may share keys. A check may have further
--          keys, all of them here: its state's other name, and a bucket for those that no state may be made for.
--
-- ARGV[1]  the time: '' for that of this server, or '<dd': the caller's time in µs since the epoch, and the margin in ms
--          to add to each time to live, for clocks that differ.
-- ARGV[i]  a check, packed as '<BBBHdHHBddI4':
--          B   what to do: 0 take, 1 ask, 2 give back, 3 take more as far as there is, 4 forget what is not out in leases;
--              5 take whether there is enough or not, 6 a lease comes back, 7 grant a lease if the request before was granted,
--              or one of what is to come if it has one check and was denied; for all but 4, with what stands at the end
--              of the check: 8 there are further keys, 16 what is found under the other name is
--              moved when it is written; for 0 to 3: 32 tell of new keys; 64 there are keys of the format before
--          B   the rule: 0 is enforced, 1 is a shadow, 2 is a mark (read and never written)
--          B   1 if the next check is of the same request, 0 if it is the last
--          H   the key: KEYS[H]
--          d   units; for 6 the size of the lease, for 7 the units wanted to be on lease
--          H   the rule's number, the same for all its checks in a request
--          H   for a shadow, the number of the rule that it replaces; 65535: none
--          B d d I4  the quota: algorithm, its first number, its limit, its third number
--              17 token bucket, GCRA, leaky bucket: n, burst, d, where a unit takes n/d µs in lowest terms
--              18 fixed window: period in µs, limit, 0
--              19 sliding window of two counters: period in µs, limit, grain in µs
--              20 sliding log: period in µs, limit, 0
--              21 sliding window in sub-buckets: width of one in µs, limit, how many
--          then for 2, '<dd': the time at which the units were taken, and that at which the state would have been fresh;
--          for 3 with an overflow bucket too: units that are not fresh yet, and have no state of their own, were taken
--          there.
--          for 6, '<dd': the units that are left, of a window with those of earlier leases that came back later, and the
--          generation that was told when the lease was granted;
--          for 7, '<dddd': the most that may be on lease; the units wanted of what is to come, within how many µs all that
--          is taken has to come back, and how few units have to be left.
--          and with 8, last, '<HHH': the other name of the state, the overflow bucket, the other name of that; 0: none.
--          A state that is under neither name is read and written in the overflow bucket, if there is one; or else
--          written under the first name if states are moved, under the other if they stay.
--          with 64, behind these, '<HHHH': the same four names in the format before, or 0. Where there is no state under
--          the names of this format, one that is there is converted. It is written under the name of this format, and stays
--          where it was for those who know no other.
--          For 4, an algorithm of 255 is any: whatever is under the key is deleted.
--          2 to 7 are requests of one check. Checks on one state are folded by the caller: their costs are summed.
--
-- Returns integers: the time in µs, then three for each check:
--          -1 fits, -2 never fits, -3 nothing was done for this check; from 0 on it does not fit: the µs after which it
--          would; from -4 down it fits and leaves less than its units: -4 - the µs after which they fit again (units of 0
--          with nothing left: after which one does)
--          units left: after the take if the request takes, as they are if not; for 4, 1 if there was a value; after -3 why: 0 the value of the key is not
--          ours; or the server refuses a command of this check, and may run those of others: 1 it has no memory, 2 it
--          cannot save, 3 it has too few replicas, 4 the user has no right to it, 5 for another reason
--          µs until the state equals a fresh one; after a take without what is on lease in leases
--          For 7: 0 nothing is granted, 1 a tracked lease, 2 one of what is to come, or -3; its units; its
--          generation or window, or the µs after which its units begin to come.
--          A check that wants to be told of new keys, and was not answered -3: -1 - units left where they are those of
--          the overflow bucket, and -1 - µs where a key was made.
--
-- A state is a string: the 21 bytes of the quota that wrote it, whose first byte is also the version of the format, and
-- what its algorithm counts, and where units are out in leases, what is known of them. It lives until it equals a fresh one. A quota that finds the state of another converts it,
-- but on most denials, which leave it as it is: until units are taken, they come back as the quota that wrote it says.
--
-- Ten units a second, ten at once, one unit, by the server's clock (redis-cli reads \x.. in a line of its input):
--   EVALSHA <sha> 1 k "" "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\xff\xff\x11\x00\x00\x00\x00\x00\x6a\xf8\x40\x00\x00\x00\x00\x00\x00\x24\x40\x01\x00\x00\x00"
--   1) (integer) 1763740800123456  2) (integer) -1  3) (integer) 9  4) (integer) 100000
--
-- No shebang, and nothing that Lua 5.1 and 5.4 do not share: servers before Redis 7 and Dragonfly run it. Each call
-- makes the functions it needs anew, so an algorithm is loaded when a check asks for it, and they are few.

local codec = struct or string
local pack, unpack, sub, format = codec.pack, codec.unpack, string.sub, string.format
local call, try = redis.call, redis.pcall

-- A lease that is on lease is known for two generations of 10 s, by the number of the one in which it was granted.
local LIFE = 10000000

-- Why the server refuses a command, as a reply says it. Nil for what concerns every check, such as a replica that takes no
-- writes: then the error is the answer to the call, unless something was written, which would look as if it were not.
local function refusal(err, wrote)
  local function says(words) return string.find(err, words, 1, true) end
  if says('OOM') then return 1 end
  if says('MISCONF') then return 2 end
  if says('NOREPLICAS') then return 3 end
  -- The words of Valkey, and of Redis.
  if says('NOPERM') or says('ACL failure') or says('user executing the script') then return 4 end
  if wrote then return 5 end
end

-- The size of a lease: at most a quarter of what is left, and of what may still be on lease. One of one unit spares nothing.
local function lot(wanted, level, room)
  local units = (level - level % 4) / 4
  if room < 1 then return 0 end
  room = (room + 3 - (room + 3) % 4) / 4
  if room < units then units = room end
  if wanted < units then units = wanted end
  return units < 2 and 0 or units
end

-- The state of a window with what is out of it, unless that window is over. Where the state was converted to windows of
-- another length, it is out of the one that it was converted to.
local function kept_with(state, lent, now, raw)
  if state == '' then return state end
  local number, units = unpack('<dd', lent)
  local before, period = unpack('<d', raw, 2), unpack('<d', state, 2)
  if number ~= (now - now % before) / before then return state end
  if before ~= period then lent = pack('<dd', (now - now % period) / period, units) end
  return state .. lent
end

-- A state of the format before, in this one. There is none before the first.
local function converted(raw) return raw end

-- ⌊a · b / d⌋ and the remainder, exact where the product leaves 53 bits: a, b < 2^53, d < 2^50.
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

-- An algorithm is a function of (raw, three numbers of the quota, now, cost), where raw is the state as it was read, or
-- false. It returns the three numbers of a reply; then the state to write ('' for none) and the µs until it is fresh, if
-- there is something to write: the units taken if they fit, a repair if not; then whether another quota wrote raw and a
-- denial may leave it so; then whether the state will be fresh at the very time at which raw would; then, if units were
-- taken and as many do not fit again at once, the µs after which they do.
--
-- If refunding, it is one of (raw, the three numbers, now, cost, at, fresh_at), and returns -1 or -3, then what to write.
