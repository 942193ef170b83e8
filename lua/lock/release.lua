-- release: ends one hold of a mutex, or leaves its queue; a lock that becomes free is handed over to the first waiter.
--
-- Why atomic: between comparing and freeing, a lease can end and another holder begin, whose lock would be freed. And
-- the lock is handed over in the same instant: were it freed first, a newcomer could overtake, and all waiters would
-- have to be woken to compete for it.
--
-- A free lock keeps its fence until its lease would have ended, so that the next fence is higher even if the clock is
-- set back meanwhile; and its last hold, so that a retry of this call gets the answer of the first run. After a
-- hand-over a lock is kept for 1000 ms for the new holder, which is sent "<hold> <fence>" and may begin without another
-- call (lock/acquisition.go describes when).
--
-- KEYS[1] lock    string, see acquire.lua
-- KEYS[2] queue   sorted set of waiters
--
-- ARGV[1] who      "<owner> <hold>": the entry that ends
-- ARGV[2] channel  where we were to be woken, when the queue is to be left too; empty, or left out with the
--                  flags: we never queued
-- ARGV[3] flags    letters: "c" a node of a cluster, which can't see whether a subscriber is alive
--
-- Returns a code:
--   freed     the hold was the owner's last, the lock is free or handed over; or it was so by an earlier run, and no
--             other caller took it since
--   kept      the owner holds the lock by other entries; this one has ended, now or in an earlier run
--   not-held  this hold does not have the lock; nothing changed but the queue
--
-- Cost: O(1); O(log waiters) where others wait. On a server that is full a lock without waiters is deleted, and its
-- fence forgotten.

local lock, queue = KEYS[1], KEYS[2]
local who, channel, flags = ARGV[1], ARGV[2] or '', ARGV[3] or ''

if channel ~= '' then
  redis.call('ZREM', queue, who .. ' ' .. channel)
end
local value = redis.call('GET', lock)
if not value then
  return 'not-held'
end

local mark = string.sub(value, 17, 17)
if string.sub(value, 18) ~= who then
  local owner, hold = string.match(who, '^(%S+) (%S+)$')
  local holder = string.sub(value, 18) .. ' '
  if mark == '-' or string.sub(holder, 1, #owner + 1) ~= owner .. ' ' then
    return 'not-held'
  end
  local from, to = string.find(holder, ' ' .. hold .. ' ', #owner, true)
  if from then
    holder = string.sub(holder, 1, from) .. string.sub(holder, to + 1)
    -- pcall: on a full server one entry too many stays until the lease ends.
    redis.pcall('SET', lock, string.sub(value, 1, 17) .. string.sub(holder, 1, -2), 'KEEPTTL')
  elseif owner == hold then
    return 'not-held' -- this owner has no other entries
  end
  return 'kept'
end
if mark == '-' then
  return 'freed'
end

local fence = string.sub(value, 1, 16)
local head = mark ~= ' ' and redis.call('ZPOPMIN', queue)[1]
while head do
  local first, hold, there = string.match(head, '^(%S+ (%S+)) (%S+)$')
  local now = redis.call('TIME')
  local next_fence = now[1] .. string.sub('000000', #now[2] + 1) .. now[2]
  if next_fence <= fence then
    next_fence = string.format('%.0f', fence + 1)
  end
  -- pcall: the user may lack the right to publish; then waiters poll
  local receivers = redis.pcall('PUBLISH', there, hold .. ' ' .. next_fence)
  if type(receivers) == 'number' and receivers > 0 or string.find(flags, 'c', 1, true) then
    -- What was published must become true. A full server refuses only the first write of a script: the queue's.
    redis.call('SET', lock, next_fence .. '+' .. first, 'PX', '1000')
    return 'freed'
  end
  head = redis.call('ZPOPMIN', queue)[1]
end
if type(redis.pcall('SETRANGE', lock, 16, '-')) == 'table' then
  redis.call('DEL', lock)
end
return 'freed'
