-- passed: checks whether everything that was in a stream at some instant is settled.
--
-- Why atomic: "passed" proves that an order which is not in Postgres is not on its way there either. So trust, time and
-- the ends of the stream must be of one instant: a stream that its server has lost looks as empty as one that is
-- settled.
--
-- KEYS[1] orders   stream of order events; what is settled is deleted from it
-- KEYS[2] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
--
-- ARGV[1] at_ms  the instant, in ms of Redis' clock; 0 means now
--
-- Returns a code, then the instant to check again, in ms:
--   passed     no event of that instant, or an older one, is in the stream
--   waiting    there is one
--   untrusted  the state of this server process is not verified: an event may be missing that will be resubmitted
-- Raises BADCALL for an instant that is no number; nothing changes in any case.
--
-- Cost: O(1), two INFO.

local orders, trusted = KEYS[1], KEYS[2]
local at_ms = tonumber(ARGV[1])
if not at_ms or at_ms < 0 then
  return redis.error_reply('BADCALL passed: at_ms is not a number of at least 0')
end

local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local known = redis.call('GET', trusted) == server

local function ms_of(entries)
  return entries[1] and tonumber(string.match(entries[1][1], '^%d+'))
end
local first = ms_of(redis.call('XRANGE', orders, '-', '+', 'COUNT', 1))
if at_ms == 0 then
  local time = redis.call('TIME')
  at_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- Ids never go back, clocks may: what is in the stream now counts as of now.
  at_ms = math.max(at_ms, ms_of(redis.call('XREVRANGE', orders, '+', '-', 'COUNT', 1)) or 0)
end

local code = 'passed'
if not known then
  code = 'untrusted'
elseif first and first <= at_ms then
  code = 'waiting'
end
return { code, at_ms }
