-- handover: gives free units of a sale to buyers who wait for them. It is no script of its own: its two functions are
-- the head of each script that can free units or unblock the waitlist (release, adjust, leave), see handover.go.
--
-- Why atomic: a unit that is free for an instant between two scripts can be taken by any request, before buyers who
-- have waited for it. So the script that frees it hands it over in the same step. An order that is made in this way is
-- an accept like those of admit: stock, slot, event and counter change together. Its event has one field more: w, the
-- ticket on the waitlist, by which other systems learn that the buyer's turn has come.
--
-- First come, first served, without exception: while the first in the waitlist wants more units than are free, none
-- behind it gets any. Nothing is handed over while the sale is not open. A buyer whose entry can't be read, or who has
-- a slot already, is taken off the waitlist and reported.
--
-- plan_hand_over reads and decides; hand_over writes. A script plans before its first write, so that nothing which can
-- still fail comes after it.
--
-- Cost: nothing but a comparison while no buyer waits; else TIME, XLEN, ZRANGE, two HMGET, and one XADD for each order.

-- One call hands over at most this many orders: they take the server about as long as a full batch of admit. The caller
-- sees that there were so many, and calls again.
local most_handed_over = 100

-- keys: sale, buyers, orders, waitlist, waiting. now: of the sale, as it will be: state, stock, accepted, opens_ms,
-- closes_ms, waiting (numbers but the state). Nothing is handed over beyond max_events in the stream.
local function plan_hand_over(keys, now, max_events)
  local plan = {
    stock = now.stock, accepted = now.accepted, events = {}, filled = {}, gone = {}, handed = {}, dropped = {},
  }
  if not now.waiting or now.waiting < 1 or now.state ~= 'active' then
    return plan
  end
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local room = max_events - redis.call('XLEN', keys.orders)
  local heads = redis.call('ZRANGE', keys.waitlist, 0, most_handed_over - 1)
  if now_ms < now.opens_ms or now_ms >= now.closes_ms or #heads == 0 then
    return plan
  end
  local at = string.format('%.0f', now_ms)
  local entries = redis.call('HMGET', keys.waiting, unpack(heads))
  local slots = redis.call('HMGET', keys.buyers, unpack(heads))
  for i, user in ipairs(heads) do
    local order_id, units, number, ticket, key_hash, payload_hash
    if entries[i] then
      order_id, units, number, ticket, key_hash, payload_hash =
        string.match(entries[i], '^(%S+) (%d+) (%d+) %d+ (%d+) (%S+) (%S+)$')
    end
    local quantity = tonumber(units)
    if not quantity or slots[i] then
      plan.dropped[#plan.dropped + 1] = user
    elseif quantity > plan.stock or #plan.events >= room then
      break
    else
      plan.stock = plan.stock - quantity
      plan.accepted = plan.accepted + 1
      local sequence = string.format('%.0f', plan.accepted)
      local event = { 'k', sequence, 'o', order_id, 'n', number, 'u', user, 'q', units, 't', at, 'w', ticket }
      if key_hash ~= '-' then
        table.insert(event, 'h')
        table.insert(event, key_hash)
      end
      plan.events[#plan.events + 1] = event
      plan.filled[#plan.filled + 1] = user
      plan.filled[#plan.filled + 1] =
        table.concat({ order_id, units, number, at, sequence, key_hash, payload_hash }, ' ')
      plan.handed[#plan.handed + 1] = order_id
    end
    plan.gone[#plan.gone + 1] = user
  end
  return plan
end

local function hand_over(keys, sale_id, plan)
  for _, event in ipairs(plan.events) do
    redis.call('XADD', keys.orders, '*', 'v', '1', 's', sale_id, unpack(event))
  end
  if #plan.filled > 0 then
    redis.call('HSET', keys.buyers, unpack(plan.filled))
  end
  if #plan.gone > 0 then
    redis.call('ZREM', keys.waitlist, unpack(plan.gone))
    redis.call('HDEL', keys.waiting, unpack(plan.gone))
    redis.call('HSET', keys.sale, 'stock', string.format('%.0f', plan.stock),
      'accepted', string.format('%.0f', plan.accepted), 'waiting', redis.call('ZCARD', keys.waitlist))
  end
end

