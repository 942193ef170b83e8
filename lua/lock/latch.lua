-- latch: makes a latch, counts a party in, returns how many are missing, and lets a caller wait.
--
-- Why atomic: the last party opens the latch and wakes all waiters; one that joins them in between would never be
-- woken. And a latch is made by the first caller, once.
--
-- The latch is a set of the parties that have arrived, not a number: a party that is counted twice, by a retry, counts
-- once.
--
-- KEYS[1] latch   hash: "count", and one field "p:<party>" for each that has arrived; expires
-- KEYS[2] queue   set of waiters, "<hold> <channel>"; expires with the latch
--
-- ARGV[1] count    parties that it takes
-- ARGV[2] life_ms  how long the latch lives after it is made, in ms
-- ARGV[3] party    the party that arrives; empty: none
-- ARGV[4] hold     the waiter that joins, with channel; empty: none. With "-" before it: the waiter that leaves
-- ARGV[5] channel  where to wake the waiter
--
-- Returns how many parties are missing; 0: the latch is open.
-- Raises DIFFERS when the latch was made for another number of parties; nothing changes.
--
-- Cost: O(1); O(waiters) for the party that opens it.

local latch, queue = KEYS[1], KEYS[2]
local count, life_ms, party, hold, channel = unpack(ARGV)

if string.sub(hold, 1, 1) == '-' then
  redis.call('SREM', queue, string.sub(hold, 2) .. ' ' .. channel)
  hold = ''
end
local made = redis.call('HGET', latch, 'count')
if made and made ~= count then
  return redis.error_reply('DIFFERS latch: it was made for ' .. made .. ' parties')
end
if not made and (party ~= '' or hold ~= '') then
  redis.call('HSET', latch, 'count', count)
  redis.call('PEXPIRE', latch, life_ms)
end
if party ~= '' then
  local arrived = redis.call('HEXISTS', latch, 'p:' .. party) == 1
  if not arrived and redis.call('HLEN', latch) <= tonumber(count) then -- an open latch needs no more
    redis.call('HSET', latch, 'p:' .. party, '1')
  end
end
local missing = count - math.max(redis.call('HLEN', latch) - 1, 0)
if missing == 0 then
  for _, waiter in ipairs(redis.call('SMEMBERS', queue)) do
    local whom, there = string.match(waiter, '^(%S+) (%S+)$')
    redis.pcall('PUBLISH', there, whom) -- pcall: the user may lack the right to publish; then waiters poll
  end
  redis.call('DEL', queue)
elseif hold ~= '' then
  redis.call('SADD', queue, hold .. ' ' .. channel)
  redis.call('PEXPIRE', queue, redis.call('PTTL', latch))
end
return missing
