-- load: puts a sale into Redis, unless it is there.
--
-- Why atomic: a loader that finds the sale absent must not overwrite a sale that began in between; its stock is the
-- truth, and the loader's is older. All fields appear at once, so no admission ever sees a sale without its window.
--
-- KEYS[1] sale  hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--               waiting [group group_limit]
-- KEYS[2] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
--
-- ARGV[1] stock         units left to sell
-- ARGV[2] total         units, sold ones included
-- ARGV[3] opens_ms      Unix time in ms; the first instant at which orders are accepted
-- ARGV[4] closes_ms     Unix time in ms; the first instant at which they no longer are
-- ARGV[5] max_quantity  units in one order
-- ARGV[6] state         active, paused or closed
-- ARGV[7] version       counts the changes of the sale's definition
-- ARGV[8] limit         the most buyers that may wait; 0 where there is no waitlist
-- ARGV[9] group         of sales that have a limit together; "" where the sale is in none
-- ARGV[10] group_limit  units that a buyer may have in all sales of the group
--
-- Returns a code:
--   loaded     the sale is there now; its counters (accepted, released, tickets, waiting) begin at 0
--   present    it was there already; nothing changed
--   untrusted  the state of this server process is not verified: it may have lost the sale; nothing changed
-- Raises BADCALL for a wrong number of arguments; nothing changes.
--
-- Cost: O(1).

local sale, trusted = KEYS[1], KEYS[2]
local stock, total, opens_ms, closes_ms, max_quantity, state, version, limit, group, group_limit = unpack(ARGV)

if #ARGV ~= 10 then
  return redis.error_reply('BADCALL load: 10 arguments expected')
end
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('GET', trusted) ~= server then
  return 'untrusted'
end
if redis.call('HLEN', sale) > 0 then -- not EXISTS: a key of another type must be an error, not "present"
  return 'present'
end

join_group(sale, group)
redis.call('HSET', sale, 'stock', stock, 'total', total, 'opens_ms', opens_ms, 'closes_ms', closes_ms,
  'max_quantity', max_quantity, 'state', state, 'version', version, 'accepted', '0', 'released', '0',
  'waitlist', limit, 'tickets', '0', 'waiting', '0', group_fields(group, group_limit))
return 'loaded'
