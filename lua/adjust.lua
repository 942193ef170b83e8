-- adjust: brings a sale in Redis to a newer definition: restock, reduce, reschedule, edit, pause, resume,
-- close. Units that are free then are handed over to buyers who wait (handover.lua), unless the state of this server
-- process is not verified.
--
-- Why atomic: the stock moves by the difference of two totals while orders take from it; and two changes that arrive in
-- the wrong order must end as the newer one, so the version is compared in the same step as it is replaced. New units
-- belong to the buyers who wait before any other request can see them.
--
-- KEYS[1] sale  hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--               waiting
-- KEYS[2] buyers  hash: user id -> slot
-- KEYS[3] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[4] orders  stream of order events
-- KEYS[5] waitlist  sorted set of the user ids that wait, by ticket
-- KEYS[6] waiting  hash: user id -> waitlist entry
--
-- ARGV[1] total         units, sold ones included
-- ARGV[2] opens_ms      Unix time in ms; the first instant at which orders are accepted
-- ARGV[3] closes_ms     Unix time in ms; the first instant at which they no longer are
-- ARGV[4] max_quantity  units in one order
-- ARGV[5] state         active, paused or closed
-- ARGV[6] version       counts the changes of the sale's definition; an integer below 2^53
-- ARGV[7] limit         the most buyers that may wait; 0 where there is no waitlist
-- ARGV[8] sale_id       goes into the events; KEYS[1] is what identifies the sale
-- ARGV[9] max_events    entries that the stream may have, after which nothing is handed over: at least 1
--
-- Returns a code, then two arrays: the ids of the orders that were made for buyers who waited (at most 100: if there
-- are so many, more can be handed over), and the users who were taken off the waitlist because their entry or slot
-- can't be right:
--   adjusted     the sale has the new definition, and its stock moved by the difference of the totals
--   current      Redis has this version or a newer one; nothing changed
--   absent       Redis does not have the sale; nothing changed
--   below-taken  orders have taken more than the new total; nothing changed
--   untrusted    units are to be taken out, and the state of this server process, which says how many are free, is not
--                verified; nothing changed
-- Raises BADCALL, BADSALE for arguments or a sale that none of our scripts writes; nothing changes.
--
-- Cost: O(1); while buyers wait, that of handover.lua besides.

local sale, buyers, trusted, orders, waitlist, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local total, opens_ms, closes_ms, max_quantity, state, version, limit, sale_id, max_events = unpack(ARGV)
local new_total, new_version, most_events = tonumber(total), tonumber(version), tonumber(max_events)

if #ARGV ~= 9 or not (new_total and new_version and tonumber(opens_ms) and tonumber(closes_ms) and most_events) then
  return redis.error_reply('BADCALL adjust: 9 arguments expected, total, times, version and max_events integers')
end

local code
local fields = redis.call('HMGET', sale, 'state', 'stock', 'total', 'version', 'accepted', 'waiting')
if not fields[1] then
  code = 'absent'
  return { code, {}, {} }
end
local stock, old_total = tonumber(fields[2]), tonumber(fields[3])
local old_version, accepted = tonumber(fields[4]), tonumber(fields[5])
if not (stock and old_total and old_version and accepted) then
  return redis.error_reply('BADSALE adjust: the sale hash lacks a number')
end
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local known = redis.call('GET', trusted) == server
stock = stock + new_total - old_total
if new_version <= old_version then
  code = 'current'
elseif new_total < old_total and not known then
  code = 'untrusted'
elseif stock < 0 then
  code = 'below-taken'
end
if code then
  return { code, {}, {} }
end

local count = 0 -- buyers who may be handed units
if known then
  count = tonumber(fields[6])
end
local keys = { sale = sale, buyers = buyers, orders = orders, waitlist = waitlist, waiting = waiting }
local plan = plan_hand_over(keys, {
  state = state, stock = stock, accepted = accepted, opens_ms = tonumber(opens_ms), closes_ms = tonumber(closes_ms),
  waiting = count,
}, most_events)
redis.call('HSET', sale, 'stock', string.format('%.0f', stock), 'total', total, 'opens_ms', opens_ms,
  'closes_ms', closes_ms, 'max_quantity', max_quantity, 'state', state, 'version', version, 'waitlist', limit)
hand_over(keys, sale_id, plan)
code = 'adjusted'
return { code, plan.handed, plan.dropped }
