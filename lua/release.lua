-- release: gives the stock and the buyers' slots of ended orders (expired, cancelled, rejected, returned) back to a
-- sale, and hands the units that are free then over to buyers who wait (handover.lua). With no orders it does the latter
-- only. Of a returned order whose units are withdrawn only the slot goes back.
--
-- Why atomic: the slot is what proves that an order still has its units. Freeing it and giving the units back are one
-- change, so that an order released twice, or after its buyer ordered anew, gives nothing back the second time. And no
-- other request may take a unit between its being free and its being handed over.
--
-- A slot that was filled under an idempotency key is kept among the buyer's ended ones, so that the key goes on to
-- answer with its order. Those that are kept are bounded: the latest 8 of a buyer.
--
-- KEYS[1] sale    hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--                 waiting
-- KEYS[2] buyers  hash: user id -> slot, "order_id quantity number accepted_ms sequence key_hash payload_hash"
-- KEYS[3] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[4] orders  stream of order events: v s k o n u q t [h]
-- KEYS[5] waitlist  sorted set of the user ids that wait, by ticket
-- KEYS[6] waiting  hash: user id -> waitlist entry, "order_id quantity number joined_ms ticket key_hash payload_hash"
-- KEYS[7] ended   hash: user id -> slots of orders that have ended and had a key, the latest first, with ";" between
--
-- ARGV[1] sale_id     goes into the events; KEYS[1] is what identifies the sale
-- ARGV[2] max_events  entries that the stream may have, after which nothing is handed over: at least 1
-- then for each order, 0 to 1000 of them:
-- ARGV[+1] user      the buyer's id
-- ARGV[+2] order_id  the order that ended
-- ARGV[+3] withdrawn  1: its units do not go back into stock; 0: they do
--
-- Returns three arrays, or one code for all. The first has a code for each order; the second the ids of the orders that
-- were made for buyers who waited, at most 100: if there are so many, call again; the third the users who were taken
-- off the waitlist because their entry or slot can't be right.
--   released    the slot named this order: it is free now, and the order's units are back in stock, or withdrawn
--   not-held    the slot is empty or names another order; nothing changed
--   not-loaded  (alone, for all) Redis does not have the sale; nothing changed
--   untrusted   (alone, for all) the state of this server process is not verified; nothing changed
-- Raises BADCALL, BADSALE, BADSLOT for arguments, a sale or a slot that none of our scripts writes; nothing changes.
--
-- Cost: O(orders): two INFO, three HMGET, one HDEL, two HSET. HDEL goes first, which lets it run on a server that is
-- full. While buyers wait, that of handover.lua besides.

local sale, buyers, trusted, orders, waitlist, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ended = KEYS[7]
local sale_id, max_events = ARGV[1], tonumber(ARGV[2])
local first, width = 3, 3
local most_kept = 8

if not max_events or max_events < 1 or #ARGV < first - 1 or (#ARGV - first + 1) % width ~= 0 then
  return redis.error_reply('BADCALL release: a sale, max_events of at least 1, and 3 arguments for each order')
end

local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('GET', trusted) ~= server then
  return 'untrusted'
end
local fields = redis.call('HMGET', sale, 'state', 'stock', 'released', 'accepted', 'opens_ms', 'closes_ms', 'waiting')
if not fields[1] then
  return 'not-loaded'
end
local stock, released = tonumber(fields[2]), tonumber(fields[3])
local accepted, opens_ms, closes_ms = tonumber(fields[4]), tonumber(fields[5]), tonumber(fields[6])
if not (stock and released and accepted and opens_ms and closes_ms) then
  return redis.error_reply('BADSALE release: the sale hash lacks a number')
end

local users = {}
for at = first, #ARGV, width do
  users[#users + 1] = ARGV[at]
end
local slots, earlier = {}, {}
if #users > 0 then
  slots = redis.call('HMGET', buyers, unpack(users))
  earlier = redis.call('HMGET', ended, unpack(users))
end

-- kept is a slot before those that ended earlier, as many as are kept. An order whose slot was filled a second time,
-- because Redis had lost the first release, is there once.
local function kept(slot, order_id, others)
  local all = { slot }
  for other in string.gmatch(others or '', '[^;]+') do
    if #all < most_kept and string.match(other, '^%S+') ~= order_id then
      all[#all + 1] = other
    end
  end
  return table.concat(all, ';')
end

local reply, freed, free = {}, {}, {} -- free: users freed by this very batch
local keep = {} -- of those with a key: user, slots, …
for i, user in ipairs(users) do
  local slot, order_id, withdrawn = slots[i], ARGV[first - 2 + i * width], ARGV[first - 1 + i * width]
  if withdrawn ~= '0' and withdrawn ~= '1' then
    return redis.error_reply('BADCALL release: withdrawn is 0 or 1')
  end
  reply[i] = 'not-held'
  if slot and not free[user] then
    local order, quantity, key = string.match(slot, '^(%S+) (%d+) %d+ %d+ %d+ (%S+) %S+$')
    if not order then
      return redis.error_reply('BADSLOT release: a buyer\'s slot does not have 7 fields')
    elseif order == order_id then
      reply[i], free[user], freed[#freed + 1] = 'released', true, user
      if withdrawn == '0' then
        stock = stock + quantity
      end
      if key ~= '-' then
        keep[#keep + 1] = user
        keep[#keep + 1] = kept(slot, order_id, earlier[i])
      end
    end
  end
end

local keys = { sale = sale, buyers = buyers, orders = orders, waitlist = waitlist, waiting = waiting }
local plan = plan_hand_over(keys, {
  state = fields[1], stock = stock, accepted = accepted, opens_ms = opens_ms, closes_ms = closes_ms,
  waiting = tonumber(fields[7]),
}, max_events)
if #freed > 0 then
  redis.call('HDEL', buyers, unpack(freed))
  if #keep > 0 then
    redis.call('HSET', ended, unpack(keep))
  end
  redis.call('HSET', sale, 'stock', string.format('%.0f', stock), 'released', string.format('%.0f', released + #freed))
end
hand_over(keys, sale_id, plan)
return { reply, plan.handed, plan.dropped }
