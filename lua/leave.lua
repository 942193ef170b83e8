-- leave: takes a buyer off the waitlist, and hands over the units that this buyer alone kept from those behind.
--
-- Why atomic: a release may be about to hand over a unit to this buyer. Whichever comes first wins, and the answer
-- shows which: a buyer who was answered "left" gets no order.
--
-- The order id names one entry of the waitlist: run again after the buyer has joined anew, it does not end the new one.
-- Each run that finds no order takes a ticket, even if it finds no entry: once that ticket is in Postgres, a Redis that
-- counts fewer is known to be older than the leave.
--
-- KEYS[1] sale    hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--                 waiting
-- KEYS[2] buyers  hash: user id -> slot, "order_id quantity number accepted_ms sequence key_hash payload_hash"
-- KEYS[3] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[4] orders  stream of order events: v s k o n u q t [h]
-- KEYS[5] waitlist  sorted set of the user ids that wait, by ticket
-- KEYS[6] waiting  hash: user id -> waitlist entry, "order_id quantity number joined_ms ticket key_hash payload_hash"
--
-- ARGV[1] sale_id     goes into the events; KEYS[1] is what identifies the sale
-- ARGV[2] max_events  entries that the stream may have, after which nothing is handed over: at least 1
-- ARGV[3] user        the buyer's id
-- ARGV[4] order_id    of the order that the buyer waits for
--
-- Returns a code; the ticket taken, or 0; and two arrays: the ids of the orders that were made for the buyers behind
-- (at most 100: if there are so many, more can be handed over), and the users who were taken off the waitlist because
-- their entry or slot can't be right.
--   left        the buyer waits no longer
--   absent      the buyer does not wait for this order, and has no slot that names it
--   ordered     the buyer's slot names this order: it was handed over before; nothing changed
--   not-loaded  Redis does not have the sale; nothing changed
--   untrusted   the state of this server process is not verified; nothing changed
-- Raises BADCALL, BADSALE for arguments or a sale that none of our scripts writes; nothing changes.
--
-- Cost: O(log(waitlist)): two INFO, HMGET, two HGET, ZREM, HDEL, HSET. While buyers wait, that of handover.lua besides.

local sale, buyers, trusted, orders, waitlist, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local sale_id, max_events, user, order_id = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if #ARGV ~= 4 or not max_events or max_events < 1 then
  return redis.error_reply('BADCALL leave: 4 arguments expected, max_events at least 1')
end

local code
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('GET', trusted) ~= server then
  code = 'untrusted'
  return { code, 0, {}, {} }
end
local fields = redis.call('HMGET', sale, 'state', 'stock', 'accepted', 'opens_ms', 'closes_ms', 'tickets')
if not fields[1] then
  code = 'not-loaded'
  return { code, 0, {}, {} }
end
local stock, accepted = tonumber(fields[2]), tonumber(fields[3])
local opens_ms, closes_ms = tonumber(fields[4]), tonumber(fields[5])
local tickets = tonumber(fields[6] or '0')
if not (stock and accepted and opens_ms and closes_ms and tickets) then
  return redis.error_reply('BADSALE leave: the sale hash lacks a number')
end

local slot = redis.call('HGET', buyers, user)
if slot and string.match(slot, '^%S+') == order_id then
  code = 'ordered'
  return { code, 0, {}, {} }
end
local entry = redis.call('HGET', waiting, user)
redis.call('ZCARD', waitlist) -- keys of another type end the call here, before the first write
redis.call('XLEN', orders)
code = 'absent'
if entry and string.match(entry, '^%S+') == order_id then
  code = 'left'
  redis.call('ZREM', waitlist, user)
  redis.call('HDEL', waiting, user)
end
local count = redis.call('ZCARD', waitlist)
local ticket = string.format('%.0f', tickets + 1)
redis.call('HSET', sale, 'tickets', ticket, 'waiting', count)

local keys = { sale = sale, buyers = buyers, orders = orders, waitlist = waitlist, waiting = waiting }
local plan = plan_hand_over(keys, {
  state = fields[1], stock = stock, accepted = accepted, opens_ms = opens_ms, closes_ms = closes_ms, waiting = count,
}, max_events)
hand_over(keys, sale_id, plan)
return { code, tonumber(ticket), plan.handed, plan.dropped }
