-- unshare: gives shares back, or leaves the queue; what becomes free is handed over to waiters, in their order.
--
-- Why atomic: which waiters the freed shares suffice for depends on all others that are held; and were they free for an
-- instant, a newcomer could overtake.
--
-- KEYS[1] shares  sorted set of holders, see share.lua
-- KEYS[2] queue   sorted set of waiters
--
-- ARGV[1] kind     r, w or p
-- ARGV[2] amount   how many permits; 1 for a reader or a writer
-- ARGV[3] limit    how many permits there are; 0 for a reader or a writer
-- ARGV[4] hold     the hold that ends
-- ARGV[5] channel  where we were to be woken, when the queue is to be left too; empty: we never queued
-- ARGV[6] flags    letters: "c" a node of a cluster, which can't see whether a subscriber is alive
--
-- Returns a code:
--   freed     the shares were held and are free now, or handed over
--   not-held  they were not held: their lease had ended, or an earlier run gave them back
--
-- Cost: O(log holders + amount), and that much for each waiter that is handed a share. On a server that is full nothing
-- is handed over; waiters take it themselves.

local shares, queue = KEYS[1], KEYS[2]
local kind, amount, limit, hold, channel, flags = unpack(ARGV)

local now = redis.call('TIME')
local now_ms = string.sub(now[1] .. string.sub('000000', #now[2] + 1) .. now[2], 1, 13)
redis.call('ZREMRANGEBYSCORE', shares, '-inf', now_ms)
if channel ~= '' then
  redis.call('ZREM', queue, table.concat({kind, amount, limit, hold, channel}, ' '))
end
local freed = 0
if kind == 'p' then
  for i = 1, amount do
    freed = freed + redis.call('ZREM', shares, 'p ' .. hold .. ' ' .. i)
  end
else
  freed = redis.call('ZREM', shares, kind .. ' ' .. hold)
end

local head = redis.call('ZRANGE', queue, 0, 0)[1]
while head do
  local k, n, most, whom, there = string.match(head, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  local fits
  if k == 'p' then
    fits = redis.call('ZCARD', shares) + n <= tonumber(most)
  else
    local some = redis.call('ZRANGE', shares, 0, 0)[1]
    fits = not some or k == 'r' and string.sub(some, 1, 1) == 'r'
  end
  if not fits then
    break
  end
  redis.call('ZREM', queue, head)
  -- pcall: the user may lack the right to publish; then waiters poll
  local receivers = redis.pcall('PUBLISH', there, whom)
  if type(receivers) == 'number' and receivers > 0 or string.find(flags, 'c', 1, true) then
    local ends = string.format('%.0f', now_ms + 1000) .. '.5' -- not claimed yet, see share.lua
    local names = {}
    for i = 1, n do
      names[2 * i - 1] = ends
      names[2 * i] = k .. ' ' .. whom .. (k == 'p' and ' ' .. i or '')
    end
    if type(redis.pcall('ZADD', shares, unpack(names))) == 'table' then
      break -- a full server: the waiter is awake and tries itself
    end
    if redis.call('PEXPIRE', shares, 1000, 'GT') == 0 then
      redis.call('PEXPIRE', shares, 1000, 'NX')
    end
  end
  head = redis.call('ZRANGE', queue, 0, 0)[1]
end

if freed > 0 then
  return 'freed'
end
return 'not-held'
