-- lease: gives its caller a block of a counter that no other caller has or had.
--
-- Why atomic: a Redis that was restored, failed over or flushed counts again from an earlier value, while processes
-- still have blocks above it. Whether this is the server process that issued the last block, and what it issues now,
-- must be one step.
--
-- A process that is not the issuer of the last block continues from a random place: two blocks then overlap with a
-- chance of two times the block's size in 2^32 for each block that is still in use. No clock is read, and no guess is
-- made at how much was lost.
--
-- KEYS[1] counter  string: a number that only grows while one server process keeps it; its callers use its low 32 bits
-- KEYS[2] issuer   string: "<run_id>:<replid>" of the server process, and of its history, that issued the last block
--
-- ARGV[1] start   a random number from 0 to 2^32 - 1: where a process that has issued nothing yet begins
-- ARGV[2] block   how many numbers are wanted: an integer of at least 1
-- ARGV[3] ttl_ms  how long both keys are kept after their first use, in ms
--
-- Returns the counter after the lease, and the issuer: the block is the numbers from that counter minus block up to, but
-- without, that.
-- Raises BADCALL for arguments that are no such numbers; nothing changes.
--
-- Cost: O(1), two INFO.

local counter, issuer = KEYS[1], KEYS[2]
local start, block, ttl_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

if not (start and block and ttl_ms) or start < 0 or block < 1 or ttl_ms < 1 then
  return redis.error_reply('BADCALL lease: start, block and ttl_ms are numbers')
end

local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('GET', issuer) ~= server or redis.call('EXISTS', counter) == 0 then
  redis.call('SET', counter, ARGV[1], 'PX', ttl_ms)
  redis.call('SET', issuer, server, 'PX', ttl_ms)
end
return { redis.call('INCRBY', counter, ARGV[2]), server }
