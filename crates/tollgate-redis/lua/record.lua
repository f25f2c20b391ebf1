-- What stands before the script where a call is about a reservation: it reads, opens or takes away the open record, and where there is
-- none nothing else is done. So what the call settles is settled once. A ledger may not hear of a settlement, and releases the
-- reservation after its term: under a durable rule the record says so long that it was settled.
--
-- KEYS[last]  the record. It is in the slot of the states.
-- ARGV[last]  '-' takes it away; '-' and a time in ms says until so long after its end that it was settled; '+' and a term opens it; '='
--             and a term lets it end after that; '!' releases what was not settled, and takes it away.
--
-- Returns -1 alone where there is no record; otherwise what the script returns to the other keys and arguments.
do
  local record, what = table.remove(KEYS), table.remove(ARGV)
  local how, term = string.sub(what, 1, 1), string.sub(what, 2)
  local state = redis.call('GET', record)
  if how == '!' and state == '-' or (how == '-' or how == '=') and state ~= '' then return { -1 } end
  if how == '-' and term ~= '' then
    redis.call('SET', record, '-', 'PX', redis.call('PTTL', record) + term)
  elseif how == '-' or how == '!' then
    redis.call('DEL', record)
  else
    redis.call('SET', record, '', 'PX', term)
  end
end

