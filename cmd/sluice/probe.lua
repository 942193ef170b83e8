-- probe: tries, on a key of its own, the stream commands that the pipeline rests on. Run by `sluice doctor`.
--
-- Atomic, so that nobody ever sees the key: it is made and removed within one call.
--
-- KEYS[1]  a stream that does not exist
-- ARGV     none
-- Returns  "ok", or what this server does not do
-- Cost     constant, some 20 µs
local stream = KEYS[1]
local group, dead, living = 'workers', 'dead', 'living'

redis.call('TIME')
local id = redis.call('XADD', stream, '*', 'v', '1')
redis.call('PEXPIRE', stream, 60000) -- a server that fails below keeps what was written so far
redis.call('XGROUP', 'CREATE', stream, group, '0')
redis.call('XREADGROUP', 'GROUP', group, dead, 'COUNT', 1, 'STREAMS', stream, '>')
redis.call('XDEL', stream, id)
local claimed = redis.call('XAUTOCLAIM', stream, group, living, 0, '0-0')
local pending = redis.call('XPENDING', stream, group)
redis.call('DEL', stream)

-- From 7.0 on a claim tells which of its entries were deleted under it, and drops them.
if #claimed < 3 or #claimed[3] ~= 1 then
  return 'XAUTOCLAIM does not tell about deleted entries'
end
if pending[1] ~= 0 then
  return 'XAUTOCLAIM keeps deleted entries pending'
end
return 'ok'
