-- try_many: takes each of a batch of locks that is free, and leaves those that are not; or takes all of them or none.
--
-- Why atomic: a retry after a lost reply must find the locks of its first run and report them as held. That is a lookup
-- and a decision for each key, between which no other call may come. All or none needs the whole batch to be one step.
-- (Best effort would not; it is one script because one round trip per lock costs a quarter of a worker's throughput.)
--
-- A token ends with the lease of its locks. One that would last longer, because the server's clock has jumped since it
-- was taken, ends a whole lease from now on: not before its holder believes, and not as late as the clock was wrong by.
--
-- KEYS[+1] lock    one for each lock, 1 to 1000 of them; a string with its holder's token, which expires
--
-- ARGV[1] token   unique to this call, so that finding it means that this very call took the lock; "<name>/<ttl_ms>"
-- ARGV[2] ttl_ms  lease in ms, counted from the first run
-- ARGV[3] all     1: take all or none; 0: as many as are free
--
-- Returns an array of the indexes, from 1 on, of those locks that another holds: usually none, which is a short reply.
-- With all, and one of them busy, nothing is held.
-- Raises OOM on a server that is full, before anything is taken.
--
-- Cost: O(locks): one SET for each, and one GET and one PTTL for each that is busy. With all, and one of them busy, one
-- DEL more.

local token, ttl_ms, all = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call -- one lookup instead of one for each lock

local busy = {}
for i = 1, #KEYS do
  -- pcall: a key of another type counts as busy, and must not end a batch that is half taken.
  if not call('SET', KEYS[i], token, 'NX', 'PX', ttl_ms) then
    local holder = redis.pcall('GET', KEYS[i])
    if holder ~= token then
      busy[#busy + 1] = i
      local lease_ms = type(holder) == 'string' and tonumber(string.match(holder, '/(%d+)$'))
      if lease_ms and call('PTTL', KEYS[i]) > lease_ms then
        call('PEXPIRE', KEYS[i], string.format('%.0f', lease_ms))
      end
    end
  end
end
if all == '1' and #busy > 0 and #busy < #KEYS then
  local ours, at = {}, 1 -- also what an earlier run took, whose reply was lost
  for i = 1, #KEYS do
    if busy[at] == i then
      at = at + 1
    else
      ours[#ours + 1] = KEYS[i]
    end
  end
  call('DEL', unpack(ours))
end
return busy
