-- run_once: claims the current tick of a job that many nodes schedule.
--
-- Why atomic: whether the tick is free, and how much of it is left, must still be true when it is taken.
--
-- The key lives until the job is due again. A node whose timer fires a little early may take the tick within early_ms
-- of that, else a single node would miss every second tick. What it took early is added to the next tick, so the job's
-- average pace is never above one run per tick, however many nodes call.
--
-- A key that lives longer than that was set, or has survived, under a clock that has jumped since. Nobody can have the
-- tick for longer than a tick from now on, so that is when it ends: a clock that was wrong for an instant must not stop
-- the job for as long as it was wrong by.
--
-- KEYS[1] job       string with the token of the run that has the tick; expires when the next is due
--
-- ARGV[1] token     unique to this call, so that finding it means that this very call took the tick
-- ARGV[2] tick_ms   from one run to the next, in ms
-- ARGV[3] early_ms  how much too early a run may begin, in ms; less than tick_ms
--
-- Returns a code:
--   run   the tick is ours: by this run of the script, or by an earlier one whose reply was lost
--   busy  another has it; nothing changed, unless it would have ended too late
--
-- Cost: O(1).

local job = KEYS[1]
local token, tick_ms, early_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local holder = redis.call('GET', job)
if holder == token then
  return 'run'
end
local left_ms = math.max(redis.call('PTTL', job), 0) -- negative where there is no key, or one that never expires
if holder and left_ms > tick_ms + early_ms then
  redis.call('PEXPIRE', job, tick_ms)
end
if holder and left_ms > early_ms then
  return 'busy'
end
redis.call('SET', job, token, 'PX', string.format('%.0f', tick_ms + left_ms))
return 'run'
