-- release: gives the stock and the buyers' slots of ended orders (expired, cancelled, rejected) back to a sale.
--
-- Why atomic: the slot is what proves that an order still holds its units. Freeing it and giving the units back are
-- one change, so that an order released twice, or after its buyer ordered anew, gives nothing back the second time.
--
-- KEYS[1] sale    hash: stock total opens_ms closes_ms max_quantity state version accepted released
-- KEYS[2] buyers  hash: user id -> slot, "order_id quantity number accepted_ms sequence key_hash payload_hash"
--
-- for each order, 1 to 1000 of them:
-- ARGV[+1] user      the buyer's id
-- ARGV[+2] order_id  the order that ended
--
-- Returns an array of one code for each order, or one code for all:
--   released    the slot named this order: it is free now, and the order's units are back in stock
--   not-held    the slot is empty or names another order; nothing changed
--   not-loaded  (alone, for all) Redis does not hold the sale; nothing changed
-- Raises BADCALL, BADSALE, BADSLOT for arguments, a sale or a slot that none of our scripts writes; nothing changes.
--
-- Cost: O(orders): two HMGET, one HDEL, one HSET. HDEL goes first, which lets it run on a server that is full.

local sale, buyers = KEYS[1], KEYS[2]
local width = 2

if #ARGV < width or #ARGV % width ~= 0 then
  return redis.error_reply('BADCALL release: an order has 2 arguments')
end

local held = redis.call('HMGET', sale, 'state', 'stock', 'released')
if not held[1] then
  return 'not-loaded'
end
local stock, released = tonumber(held[2]), tonumber(held[3])
if not (stock and released) then
  return redis.error_reply('BADSALE release: the sale hash lacks a number')
end

local users = {}
for at = 1, #ARGV, width do
  users[#users + 1] = ARGV[at]
end
local slots = redis.call('HMGET', buyers, unpack(users))

local reply, freed, free = {}, {}, {} -- free: users freed by this very batch
for i, user in ipairs(users) do
  local slot, order_id = slots[i], ARGV[i * width]
  reply[i] = 'not-held'
  if slot and not free[user] then
    local order, quantity = string.match(slot, '^(%S+) (%d+) %d+ %d+ %d+ %S+ %S+$')
    if not order then
      return redis.error_reply('BADSLOT release: a buyer\'s slot does not have 7 fields')
    elseif order == order_id then
      reply[i], free[user], freed[#freed + 1] = 'released', true, user
      stock = stock + quantity
    end
  end
end
if #freed == 0 then
  return reply
end

redis.call('HDEL', buyers, unpack(freed))
redis.call('HSET', sale, 'stock', string.format('%.0f', stock), 'released', string.format('%.0f', released + #freed))
return reply
