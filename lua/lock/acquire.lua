-- acquire: takes a mutex, enters it once more for the same owner, claims it after a hand-over, or joins its queue.
--
-- Why atomic: that the lock is free, that no other caller is before us, and that our fence is above the last one must
-- all still be true when the lock is taken. That is also why a waiter joins the queue here: between "busy" and "queued"
-- the holder could leave, and would wake no one.
--
-- The lock is one string: the fence (16 digits), a mark, the owner, and a hold for each entry of the owner, all
-- separated by single spaces. The mark is " " while it is held, "+" when others may wait besides, "-" when the lock is
-- free and only its fence is remembered, until the lease would have ended. Any other string is a lock of another kind
-- and counts as held.
--
-- After a hand-over a lock is kept for 1000 ms for the new holder, which then claims it for its whole lease, here or by
-- renewal. A queue that no waiter calls for 180000 ms is gone.
--
-- KEYS[1] lock    string, as described above; expires with the lease
-- KEYS[2] queue   sorted set of waiters, "<owner> <hold> <channel>", by the time of arrival in µs
--
-- ARGV[1] who      "<owner> <hold>"; the hold is unique to this entry, so that a retry of the call enters once
-- ARGV[2] ttl_ms   lease in ms
-- ARGV[3] channel  where to wake us; empty, or left out with the flags: do not wait
-- ARGV[4] flags    letters: "f" fair, waiters go first even when the lock is free; "a" we may be in the queue already;
--                  "c" a node of a cluster, which can't see whether a subscriber is alive
--
-- Returns the fence, a string of 16 digits, when the lock is ours; else 0, or for a waiter an array: how many wait, and
-- in how many ms the holder's lease ends unless it is renewed.
-- Raises DEEP when the owner has entered some hundreds of times.
--
-- Cost: O(1) when it is free and not fair; O(log waiters) to wait; O(entries) to enter again.

local lock, queue = KEYS[1], KEYS[2]
local who, ttl_ms, channel, flags = ARGV[1], ARGV[2], ARGV[3] or '', ARGV[4] or ''

local value = redis.call('GET', lock)
local free = not value or string.sub(value, 17, 17) == '-'
local now, fence

if free then
  now = redis.call('TIME')
  fence = now[1] .. string.sub('000000', #now[2] + 1) .. now[2]
  if value and fence <= string.sub(value, 1, 16) then
    fence = string.format('%.0f', string.sub(value, 1, 16) + 1) -- the clock was set back
  end
  -- The lease of a fair lock ran out while others waited: it goes to the first of them, not to us.
  local head = flags ~= '' and string.find(flags, 'f', 1, true) and redis.call('ZRANGE', queue, 0, 0)[1]
  while head and head ~= who .. ' ' .. channel do
    redis.call('ZREM', queue, head)
    local first, hold, there = string.match(head, '^(%S+ (%S+)) (%S+)$')
    -- pcall: the user may lack the right to publish; then waiters poll
    local receivers = redis.pcall('PUBLISH', there, hold .. ' ' .. fence)
    if type(receivers) == 'number' and receivers > 0 or string.find(flags, 'c', 1, true) then
      redis.call('SET', lock, fence .. '+' .. first, 'PX', '1000')
      free = false
      break
    end
    head = redis.call('ZRANGE', queue, 0, 0)[1]
  end
  if free then
    redis.call('SET', lock, fence .. ' ' .. who, 'PX', ttl_ms)
  end
else
  local owner, hold = string.match(who, '^(%S+) (%S+)$')
  local holder = string.sub(value, 18) .. ' '
  if string.sub(holder, 1, #owner + 1) == owner .. ' ' then
    fence, free = string.sub(value, 1, 16), true
    if not string.find(holder, ' ' .. hold .. ' ', #owner, true) then
      if #value > 16000 then
        return redis.error_reply('DEEP acquire: the owner holds this lock some hundreds of times')
      end
      redis.call('SET', lock, value .. ' ' .. hold, 'KEEPTTL')
    end
    redis.call('PEXPIRE', lock, ttl_ms, 'GT') -- a call that comes late must not undo an extension
  end
end

if free then
  if flags ~= '' and string.find(flags, 'a', 1, true) then
    redis.call('ZREM', queue, who .. ' ' .. channel)
  end
  return fence
end
if channel == '' then
  return 0
end
now = now or redis.call('TIME')
redis.call('ZADD', queue, 'NX', now[1] .. string.sub('000000', #now[2] + 1) .. now[2], who .. ' ' .. channel)
redis.call('PEXPIRE', queue, 180000)
if value and string.sub(value, 17, 17) == ' ' and string.find(value, '^%d+ ') == 1 then
  redis.call('SETRANGE', lock, 16, '+')
end
return {redis.call('ZCARD', queue), math.max(redis.call('PTTL', lock), 0)}
