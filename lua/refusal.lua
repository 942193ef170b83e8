-- refusal: reads what decides whether sales on a partition refuse every buyer who has no slot.
--
-- Why atomic: trust, clock and the numbers of a sale must be of one instant. A sale that is read after its server was
-- found trusted could be that of another one.
--
-- The accept counter tells which buyers there are: none gets a slot without it, until the next generation.
--
-- KEYS[1] trusted     "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[2] generation  the verification of this server that was begun last, by Postgres' count
-- KEYS[+1] sale       hash of a sale, one for each of 1 to 100
--
-- ARGV[1] fence  the generation in which the partition was verified last, as far as the caller knows
--
-- Returns a code, now_ms and the generation, then twelve for each sale: state ("" where Redis does not have it),
-- opens_ms, closes_ms, max_quantity, stock, how many wait, the accept counter; and what grows with the stock, besides
-- the generation: version, released, tickets, moved_in, and moved_out. After untrusted only the code counts.
--   known      the numbers are those by which an order would be decided now
--   untrusted  the state of this server process is not verified, or another server was verified since
-- Raises BADSALE for a sale that none of our scripts writes; nothing changes in any case.
--
-- Cost: O(sales): one HMGET for each; two INFO, two GET.

local trusted, generation = KEYS[1], KEYS[2]
local fence = tonumber(ARGV[1]) or 0

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local verified = tonumber(redis.call('GET', generation) or 0) or 0
local code = 'known'
if redis.call('GET', trusted) ~= server or verified < fence then
  code = 'untrusted'
end

local reply = { code, now_ms, verified }
for i = 3, #KEYS do
  local sale = KEYS[i]
  local fields = redis.call('HMGET', sale, 'state', 'opens_ms', 'closes_ms', 'max_quantity', 'stock', 'waiting',
    'accepted', 'version', 'released', 'tickets', 'moved_in', 'moved_out')
  reply[#reply + 1] = fields[1] or ''
  for j = 2, 12 do
    local n = tonumber(fields[j] or 0)
    if not n then
      return redis.error_reply('BADSALE refusal: the sale hash has no number where one belongs')
    end
    reply[#reply + 1] = n
  end
end
return reply
