-- share: takes shares of a synchronizer that several may hold at once (readers and writers, permits), claims them after
-- a hand-over, or joins its queue.
--
-- Why atomic: whether a share is free depends on all the others and on the waiters, and must still be true when it is
-- taken.
--
-- Each holder is a member of one sorted set, scored by the end of its lease: "r <hold>" reads, "w <hold>" writes,
-- "p <hold> <n>" is a permit. Waiters form a queue without overtaking: so a writer gets its turn although readers keep
-- coming. After a hand-over a share is kept for 1000 ms for the new holder, and its end has half a ms more until it is
-- claimed. A queue that no waiter calls for 180000 ms is gone.
--
-- KEYS[1] shares  sorted set of holders, by the end of the lease in ms of the server's clock; expires with the last
--                 lease
-- KEYS[2] queue   sorted set of waiters, "<kind> <amount> <limit> <hold> <channel>", by the time of arrival in µs
-- KEYS[3] fence   string: the last writer's fence; expires with its lease
--
-- ARGV[1] kind     r, w or p
-- ARGV[2] amount   how many permits; 1 for a reader or a writer
-- ARGV[3] limit    how many permits there are; 0 for a reader or a writer
-- ARGV[4] hold     unique to this call, so that a retry takes once
-- ARGV[5] ttl_ms   lease in ms
-- ARGV[6] channel  where to wake us; empty: do not wait
-- ARGV[7] flags    letters: "a" we may be in the queue already; "c" a node of a cluster, which can't see whether a
--                  subscriber is alive
--
-- Returns a string of 16 digits when the shares are ours: a writer's fence, and zeros for all others; else 0, or for a
-- waiter an array: how many wait, and in how many ms the first of the leases ends unless it is renewed.
--
-- Cost: O(log holders + amount), and that much for each waiter that is handed a share on the way.

local shares, queue, fence = KEYS[1], KEYS[2], KEYS[3]
local kind, amount, limit, hold, ttl_ms, channel, flags = unpack(ARGV)

local now = redis.call('TIME')
local now_us = now[1] .. string.sub('000000', #now[2] + 1) .. now[2]
local now_ms = string.sub(now_us, 1, 13)
redis.call('ZREMRANGEBYSCORE', shares, '-inf', now_ms)

local function fits(k, n, most)
  if k == 'p' then
    return redis.call('ZCARD', shares) + n <= tonumber(most)
  end
  local some = redis.call('ZRANGE', shares, 0, 0)[1]
  return not some or k == 'r' and string.sub(some, 1, 1) == 'r'
end

local function give(k, n, whom, ms, half, how)
  local ends = string.format('%.0f', now_ms + ms) .. half
  for i = 1, n do
    redis.call('ZADD', shares, how, ends, k .. ' ' .. whom .. (k == 'p' and ' ' .. i or ''))
  end
  if redis.call('PEXPIRE', shares, ms, 'GT') == 0 then
    redis.call('PEXPIRE', shares, ms, 'NX')
  end
end

local function new_fence()
  if kind ~= 'w' then
    return '0000000000000000'
  end
  local last, mine = redis.call('GET', fence) or '', now_us
  if mine <= last then
    mine = string.format('%.0f', last + 1) -- the clock was set back
  end
  redis.call('SET', fence, mine, 'PX', ttl_ms)
  return mine
end

local me = table.concat({kind, amount, limit, hold, channel}, ' ')
local mine = redis.call('ZSCORE', shares, kind .. ' ' .. hold .. (kind == 'p' and ' 1' or ''))
if mine then -- handed over to us, or taken by an earlier run; a late call must not undo an extension
  give(kind, amount, hold, ttl_ms, '', string.sub(mine, -2) == '.5' and 'XX' or 'GT')
  if string.find(flags, 'a', 1, true) then
    redis.call('ZREM', queue, me)
  end
  return new_fence()
end

local cluster = string.find(flags, 'c', 1, true)
local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
while head[1] and head[1] ~= me do
  local k, n, most, whom, there = string.match(head[1], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  local free = fits(k, n, most)
  -- After a second a waiter is checked for being alive, or a dead one would block all others.
  if free or now_us - head[2] > 1000000 then
    -- pcall: the user may lack the right to publish; then waiters poll
    local receivers = redis.pcall('PUBLISH', there, whom)
    local alive = type(receivers) == 'number' and receivers > 0 or cluster
    if alive and not free then
      break
    end
    redis.call('ZREM', queue, head[1])
    if alive then
      give(k, n, whom, 1000, '.5', 'NX')
    end
  else
    break
  end
  head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
end

if (not head[1] or head[1] == me) and fits(kind, amount, limit) then
  give(kind, amount, hold, ttl_ms, '', 'NX')
  if string.find(flags, 'a', 1, true) then
    redis.call('ZREM', queue, me)
  end
  return new_fence()
end
if channel == '' then
  return 0
end
redis.call('ZADD', queue, 'NX', now_us, me)
redis.call('PEXPIRE', queue, 180000)
local ends = redis.call('ZRANGE', shares, 0, 0, 'WITHSCORES')[2] or now_ms
return {redis.call('ZCARD', queue), math.max(ends - now_ms, 0)}
