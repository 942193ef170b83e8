-- renew: makes the leases of a batch of holds longer, of locks and of shares alike; never shorter.
--
-- Why atomic: between seeing that a lock is still ours and moving its end, it could become another holder's.
--
-- KEYS[+1] key    one for each hold, 1 to 500 of them: a lock (see acquire.lua), or the sorted set of a synchronizer
--                 whose leases are shared (see share.lua)
--
-- then for each hold, in the order of KEYS:
-- ARGV[+1] owner   of the lock; empty for a share
-- ARGV[+1] hold    the entry of the owner, or the share's member of the set
-- ARGV[+1] ttl_ms  lease from now on, in ms
--
-- Returns an array of one number for each hold: 1 it is ours until then, 0 it is not ours any more; nothing changed for
-- it.
--
-- Cost: O(holds) for locks, one GET and one PEXPIRE for each; O(log shares) for a share.

local now_ms
local renewed = {}
for i, key in ipairs(KEYS) do
  local at = 3 * i - 2
  local owner, hold, ttl_ms = unpack(ARGV, at, at + 2)
  renewed[i] = 0
  if owner == '' then
    if not now_ms then
      local now = redis.call('TIME')
      now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
    end
    local ends = redis.pcall('ZSCORE', key, hold)
    if type(ends) == 'string' and tonumber(ends) > now_ms then
      redis.call('ZADD', key, 'XX', 'GT', string.format('%.0f', now_ms + ttl_ms), hold)
      redis.call('PEXPIRE', key, ttl_ms, 'GT')
      renewed[i] = 1
    end
  else
    local value = redis.pcall('GET', key) -- pcall: a key of another type is not ours, and must not end the batch
    if type(value) == 'string' and string.sub(value, 17, 17) ~= '-' then
      local holder = string.sub(value, 18) .. ' '
      local owned = string.sub(holder, 1, #owner + 1) == owner .. ' '
      if owned and string.find(holder, ' ' .. hold .. ' ', #owner, true) then
        redis.call('PEXPIRE', key, ttl_ms, 'GT')
        renewed[i] = 1
      end
    end
  end
end
return renewed
