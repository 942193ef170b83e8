-- adjust: brings a sale in Redis to a newer definition: restock, reschedule, pause, resume, close.
--
-- Why atomic: the stock moves by the difference of two totals while orders take from it; and two changes that arrive
-- in the wrong order must end as the newer one, so the version is compared in the same breath as it is replaced.
--
-- KEYS[1] sale  hash: stock total opens_ms closes_ms max_quantity state version accepted released
--
-- ARGV[1] total         units, sold ones included
-- ARGV[2] opens_ms      Unix time in ms; the first instant at which orders are accepted
-- ARGV[3] closes_ms     Unix time in ms; the first instant at which they no longer are
-- ARGV[4] max_quantity  units in one order
-- ARGV[5] state         active, paused or closed
-- ARGV[6] version       counts the changes of the sale's definition; an integer below 2^53
--
-- Returns a code:
--   adjusted     the sale has the new definition, and its stock moved by the difference of the totals
--   current      Redis holds this version or a newer one; nothing changed
--   absent       Redis does not hold the sale; nothing changed
--   below-taken  orders have taken more than the new total; nothing changed
-- Raises BADCALL, BADSALE for arguments or a sale that none of our scripts writes; nothing changes.
--
-- Cost: O(1).

local sale = KEYS[1]
local total, opens_ms, closes_ms, max_quantity, state, version = unpack(ARGV)
local new_total, new_version = tonumber(total), tonumber(version)

if #ARGV ~= 6 or not (new_total and new_version) then
  return redis.error_reply('BADCALL adjust: 6 arguments expected, total and version integers')
end

local held = redis.call('HMGET', sale, 'state', 'stock', 'total', 'version')
if not held[1] then
  return 'absent'
end
local stock, old_total, old_version = tonumber(held[2]), tonumber(held[3]), tonumber(held[4])
if not (stock and old_total and old_version) then
  return redis.error_reply('BADSALE adjust: the sale hash lacks a number')
end
if new_version <= old_version then
  return 'current'
end
stock = stock + new_total - old_total
if stock < 0 then
  return 'below-taken'
end

redis.call('HSET', sale, 'stock', string.format('%.0f', stock), 'total', total, 'opens_ms', opens_ms,
  'closes_ms', closes_ms, 'max_quantity', max_quantity, 'state', state, 'version', version)
return 'adjusted'
