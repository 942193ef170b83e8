-- load: puts a sale into Redis, unless it is there.
--
-- Why atomic: whoever finds the sale absent and then writes it must not overwrite a sale that began in between; its
-- stock is the truth, and the loader's is the state of yesterday. All fields appear at once, so no admission ever sees
-- a sale without its window.
--
-- KEYS[1] sale  hash: stock total opens_ms closes_ms max_quantity state version accepted released
--
-- ARGV[1] stock         units left to sell
-- ARGV[2] total         units, sold ones included
-- ARGV[3] opens_ms      Unix time in ms; the first instant at which orders are accepted
-- ARGV[4] closes_ms     Unix time in ms; the first instant at which they no longer are
-- ARGV[5] max_quantity  units in one order
-- ARGV[6] state         active, paused or closed
-- ARGV[7] version       counts the changes of the sale's definition
--
-- Returns a code:
--   loaded   the sale is there now; its counters accepted and released begin at 0
--   present  it was there already; nothing changed
-- Raises BADCALL for a wrong number of arguments; nothing changes.
--
-- Cost: O(1).

local sale = KEYS[1]
local stock, total, opens_ms, closes_ms, max_quantity, state, version = unpack(ARGV)

if #ARGV ~= 7 then
  return redis.error_reply('BADCALL load: 7 arguments expected')
end
if redis.call('HLEN', sale) > 0 then -- not EXISTS: a key of another type must be an error, not "present"
  return 'present'
end

redis.call('HSET', sale, 'stock', stock, 'total', total, 'opens_ms', opens_ms, 'closes_ms', closes_ms,
  'max_quantity', max_quantity, 'state', state, 'version', version, 'accepted', '0', 'released', '0')
return 'loaded'
