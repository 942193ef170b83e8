-- try_many: takes each of a batch of locks that is free, and leaves those that are not.
--
-- Why atomic: a retry after a lost reply must find the locks of its first run and call them held. That is a look and a
-- decision for each key, and nobody may come between the two. (The batch as a whole need not be atomic: it is best
-- effort. It is one script because one round trip per lock costs a quarter of a worker's throughput.)
--
-- KEYS[+1] lock    one for each lock, 1 to 1000 of them; a string that holds its holder's token and expires
--
-- ARGV[1] token   unique to this call, so that finding it means that this very call took the lock
-- ARGV[2] ttl_ms  lease in ms, counted from the first run
--
-- Returns an array of one number for each lock: 1 it is held under our token, 0 another holds it.
-- Raises OOM on a server that is full, before anything is taken.
--
-- Cost: O(locks): one SET for each, and one GET for each that is busy.

local token, ttl_ms = ARGV[1], ARGV[2]

local held = {}
for i, lock in ipairs(KEYS) do
  if redis.call('SET', lock, token, 'NX', 'PX', ttl_ms) then
    held[i] = 1
  else
    -- pcall: a key of another type is nobody's lock of ours, and must not end a batch that is half taken.
    held[i] = redis.pcall('GET', lock) == token and 1 or 0
  end
end
return held
