-- What stands before the script where a call is about a reservation: it reads, opens or takes away the open record, and where there is
-- none nothing else is done. So what the call settles is settled once.
--
-- KEYS[last]  the record. It is in the slot of the states.
-- ARGV[last]  '-' takes it away; '+' and a term in ms opens it; '=' and a term lets it end after that.
--
-- Returns -1 alone where there is no record; otherwise what the script returns to the other keys and arguments.
do
  local record, what = table.remove(KEYS), table.remove(ARGV)
  local how, term = string.sub(what, 1, 1), string.sub(what, 2)
  local is_there
  if how == '-' then
    is_there = redis.call('DEL', record) == 1
  elseif how == '=' then
    is_there = redis.call('SET', record, '', 'PX', term, 'XX')
  else
    is_there = redis.call('SET', record, '', 'PX', term)
  end
  if not is_there then return { -1 } end
end

