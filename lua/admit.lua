-- admit: decides a batch of order requests for one sale on one partition. Each request that is accepted takes stock,
-- fills its buyer's slot and appends an order event to the stream.
--
-- Why atomic: stock, slot and event must change together, or a crash between them sells a unit that is never shipped
-- (taken, no event) or ships one that was never taken. Every check reads what the writes below change, and the window
-- is compared with one clock for all buyers, Redis' own. Nothing is written before every request is decided, and the
-- first write is the only one that can still fail (wrong type, out of memory, read-only), so no failure leaves half a
-- batch.
--
-- While buyers wait, free units are theirs: the first of them may want more than there is, and no newcomer overtakes.
-- An accept that Redis may have lost comes before them, and takes its buyer off the waitlist.
--
-- Run twice with the same order ids (a retry after a lost reply), the second run answers like the first and writes
-- nothing: a slot that names the request's own order id means "accepted".
--
-- An idempotency key answers the same whatever became of its order: release.lua keeps the slots of ended orders.
--
-- KEYS[1] sale    hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--                 waiting [group group_limit]
-- KEYS[2] buyers  hash: user id -> slot, "order_id quantity number accepted_ms sequence key_hash payload_hash"
-- KEYS[3] orders  stream of order events: v s k o n u q t [h] [tp]
-- KEYS[4] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[5] waitlist  sorted set of the user ids that wait, by ticket
-- KEYS[6] waiting  hash: user id -> waitlist entry
-- KEYS[7] generation  the verification of this server that was begun last, by Postgres' count
-- KEYS[8] ended  hash: user id -> slots of orders that have ended and had a key, the latest first, with ";" between
--
-- ARGV[1] sale_id       goes into the events; KEYS[1] is what identifies the sale
-- ARGV[2] mode          "new"; or "resubmit" for accepts that Redis may have lost: those are checked for units only,
--                       not for window, state, limit and backlog
-- ARGV[3] max_events    entries that the stream may have, after which nothing new is accepted: at least 1
-- ARGV[4] fence         the generation in which the partition was verified last, as far as the caller knows: a server
--                       that has an earlier one was replaced by another, and does not know it
-- then for each request, 1 to 128 of them:
-- ARGV[+1] order_id      no spaces
-- ARGV[+2] number        the order number; 63 bits, so it stays a string throughout (a Lua number has 53)
-- ARGV[+3] user          the buyer's id
-- ARGV[+4] units         how many the buyer wants: an integer of at least 1, in plain decimal digits
-- ARGV[+5] key_hash      hash of the idempotency key; "-" for none
-- ARGV[+6] payload_hash  hash of what the buyer asked for; "-" for none
-- ARGV[+7] traceparent   W3C trace context; "" when the request is not sampled
--
-- Returns one flat array: now_ms, stock left (units), opens_ms, closes_ms, max_quantity, then two for each request: a
-- code and the buyer's slot ("" where there is none). Without the sale the first numbers but now_ms are 0.
--   accepted         the slot is this order's, filled now or by an earlier run
--   replayed         the buyer has a slot, filled under the same idempotency key for the same payload
--   ended            the buyer had such a slot, of an order that has ended since
--   key-reused       the buyer has or had a slot, filled under the same idempotency key for another payload
--   already-ordered  the buyer has a slot, and this request has no key or another one
--   sold-out         fewer units are left than asked for, or buyers wait for them
--   not-open         the window has not begun
--   closed           an operator closed the sale, or its window has ended
--   paused           an operator paused the sale
--   over-limit       more units than the sale allows in one order
--   over-group-limit  with what the buyer has or waits for in the other sales of its group (the slot then is how many
--                    units), more than a buyer may have in all of them
--   backlog-full     the stream has max_events that are not persisted yet; it would have been accepted otherwise; or
--                    the accept counter is used up, which only a forged entry with a huge sequence can do
--   not-loaded       Redis does not have the sale: nothing is known, least of all that it sold out
--   untrusted        the state of this server process is not verified: it may be old; or another server was verified
--                    since
-- Raises BADCALL, BADSALE, BADSLOT for arguments, a sale or a slot that none of our scripts writes; nothing changes.
--
-- Cost: O(requests): two INFO (some 5 microseconds), two GET, two HMGET, one HLEN, one XLEN, one XADD for each accepted
-- request, two HSET; one HMGET more once orders have ended, and that of group.lua for a sale in a group.

local sale, buyers, orders, trusted, waitlist, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local generation, ended = KEYS[7], KEYS[8]
local sale_id, mode, max_events, fence = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local first, width = 5, 7
local last = #ARGV - width + 1 -- where the last request begins
if last < first or (#ARGV - first + 1) % width ~= 0 or (mode ~= 'new' and mode ~= 'resubmit') then
  return redis.error_reply('BADCALL admit: a mode, and 7 arguments for each request')
elseif not max_events or max_events < 1 then
  return redis.error_reply('BADCALL admit: max_events is not a number of at least 1')
elseif not fence then
  return redis.error_reply('BADCALL admit: the fence is not a number')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local verified = redis.call('GET', trusted)
local known = verified == server
if mode == 'resubmit' and verified and not known then
  local half = 'reopening:' .. server .. ':'
  known = string.sub(verified, 1, #half) == half
end
if known and fence > 0 and (tonumber(redis.call('GET', generation) or 0) or 0) < fence then
  known = false
end
local fields = {}
if known then
  fields = redis.call('HMGET', sale, 'state', 'stock', 'accepted', 'opens_ms', 'closes_ms', 'max_quantity', 'waiting',
    'group', 'group_limit')
end
local state, stock, accepted = fields[1], tonumber(fields[2]), tonumber(fields[3])
local opens_ms, closes_ms, max_quantity = tonumber(fields[4]), tonumber(fields[5]), tonumber(fields[6])
if state and not (stock and accepted and opens_ms and closes_ms and max_quantity) then
  return redis.error_reply('BADSALE admit: the sale hash lacks a number')
end

local limit = max_quantity
local free = stock -- units that a newcomer can have
if mode == 'new' and fields[7] and fields[7] ~= '0' then
  free = 0
end
local shut -- why no request can be accepted now; nil while the sale is open
if not state then
  shut, stock, opens_ms, closes_ms, max_quantity = 'untrusted', 0, 0, 0, 0
  if known then
    shut = 'not-loaded'
  end
elseif mode == 'resubmit' then
  limit = math.huge
elseif state == 'closed' or now_ms >= closes_ms then
  shut = 'closed'
elseif state == 'paused' then
  shut = 'paused'
elseif state ~= 'active' then
  return redis.error_reply('BADSALE admit: the sale has no known state')
elseif now_ms < opens_ms then
  shut = 'not-open'
end

local group_limit, held = tonumber(fields[9] or ''), nil -- held: user -> units in the other sales of the group
if fields[8] and not group_limit then
  return redis.error_reply('BADSALE admit: the sale hash lacks a number')
end
local slot_of = {} -- user -> slot, those filled below included: a buyer may be in the batch twice
local ended_of = {} -- user -> slots of orders that have ended
if state then
  local users = {}
  for at = first, last, width do
    users[#users + 1] = ARGV[at + 2]
  end
  for i, slot in ipairs(redis.call('HMGET', buyers, unpack(users))) do
    slot_of[users[i]] = slot
  end
  if mode == 'new' and redis.call('HLEN', ended) > 0 then
    for i, slots in ipairs(redis.call('HMGET', ended, unpack(users))) do
      ended_of[users[i]] = slots
    end
  end
  if fields[8] and mode == 'new' and not shut and free > 0 then
    held = held_in_group(sale, fields[8], users)
  end
end

-- fields_of are the order id, the key's hash and the payload's hash of a slot.
local function fields_of(slot)
  return string.match(slot, '^(%S+) %d+ %d+ %d+ %d+ (%S+) (%S+)$')
end

-- slot_under is the slot that a buyer's idempotency key has filled: the one that the buyer has, or one of an order that
-- has ended (the second result). Where there is none, it is the one that the buyer has.
local function slot_under(user, key_hash)
  local slot = slot_of[user]
  if key_hash == '-' or not ended_of[user] or slot and select(2, fields_of(slot)) == key_hash then
    return slot, false
  end
  for earlier in string.gmatch(ended_of[user], '[^;]+') do
    if select(2, fields_of(earlier)) == key_hash then
      return earlier, true
    end
  end
  return slot, false
end

local now = string.format('%.0f', now_ms)
local since = ' ' .. now .. ' '
local room = max_events - redis.call('XLEN', orders)
if mode == 'resubmit' then
  room = math.huge
end
room = math.min(room, 2 ^ 53 - (accepted or 0)) -- a sequence beyond that is not exact, and no event may have it
local count = 0 -- requests accepted now
local begins, sequences, filled = {}, {}, {} -- of those: where each begins in ARGV; its sequence; user, slot, …
local reply = { now_ms, 0, opens_ms, closes_ms, max_quantity }
local n = #reply
for at = first, last, width do
  local order_id, number, user, units, key_hash, payload_hash = unpack(ARGV, at, at + 5)
  local quantity = tonumber(units)
  if not quantity or quantity < 1 or quantity % 1 ~= 0 then
    return redis.error_reply('BADCALL admit: quantity is not an integer of at least 1')
  end
  local slot, has_ended = slot_under(user, key_hash)
  local code
  if slot then
    local order, key, payload = fields_of(slot)
    if not order then
      return redis.error_reply('BADSLOT admit: a buyer\'s slot does not have 7 fields')
    elseif order == order_id then
      code = 'accepted'
    elseif key == '-' or key ~= key_hash then
      code = 'already-ordered'
    elseif payload ~= payload_hash then
      code = 'key-reused'
    elseif has_ended then
      code = 'ended'
    else
      code = 'replayed'
    end
  elseif shut then
    code = shut
  elseif quantity > limit then
    code = 'over-limit'
  elseif held and (held[user] or 0) + quantity > group_limit then
    code, slot = 'over-group-limit', string.format('%.0f', math.min(held[user] or 0, 2 ^ 53))
  elseif quantity > free then
    code = 'sold-out'
  elseif count >= room then
    code = 'backlog-full'
  else
    code = 'accepted'
    count = count + 1
    stock, free = stock - quantity, free - quantity
    local sequence = string.format('%.0f', accepted + count)
    slot = order_id .. ' ' .. units .. ' ' .. number .. since .. sequence .. ' ' .. key_hash .. ' ' .. payload_hash
    slot_of[user] = slot
    begins[count], sequences[count], filled[2 * count - 1], filled[2 * count] = at, sequence, user, slot
  end
  reply[n + 1], reply[n + 2] = code, slot or ''
  n = n + 2
end
reply[2] = stock
if count == 0 then
  return reply
end
local waiters = 0 -- read before the first write
if mode == 'resubmit' then
  waiters = redis.call('ZCARD', waitlist) + redis.call('HLEN', waiting)
end

for i, at in ipairs(begins) do
  local order_id, number, user, units, key_hash, _, traceparent = unpack(ARGV, at, at + 6)
  local event = { 'v', '1', 's', sale_id, 'k', sequences[i], 'o', order_id, 'n', number, 'u', user, 'q', units,
    't', now }
  if key_hash ~= '-' then
    table.insert(event, 'h')
    table.insert(event, key_hash)
  end
  if traceparent ~= '' then
    table.insert(event, 'tp')
    table.insert(event, traceparent)
  end
  redis.call('XADD', orders, '*', unpack(event))
end
redis.call('HSET', buyers, unpack(filled))
redis.call('HSET', sale, 'stock', string.format('%.0f', stock), 'accepted', sequences[count])
if waiters > 0 then
  for i = 1, 2 * count, 2 do
    redis.call('ZREM', waitlist, filled[i])
    redis.call('HDEL', waiting, filled[i])
  end
  redis.call('HSET', sale, 'waiting', redis.call('ZCARD', waitlist))
end
return reply
