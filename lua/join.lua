-- join: puts a buyer at the end of the waitlist of a sale that is sold out.
--
-- Why atomic: a waitlist entry and a slot exclude each other, and both depend on what release and admit change: a buyer
-- who is refused because units are free must find them free, and one who joins must be seen by the next release.
--
-- Run twice with the same order id (a retry after a lost reply), the second run answers like the first and writes
-- nothing; so does any further request of a buyer who waits for the same number of units.
--
-- KEYS[1] sale    hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--                 waiting [group group_limit]
-- KEYS[2] buyers  hash: user id -> slot, "order_id quantity number accepted_ms sequence key_hash payload_hash"
-- KEYS[3] trusted  "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[4] waitlist  sorted set of the user ids that wait, by ticket
-- KEYS[5] waiting  hash: user id -> waitlist entry, "order_id quantity number joined_ms ticket key_hash payload_hash"
-- KEYS[6] ended   hash: user id -> slots of orders that have ended and had a key, the latest first, with ";" between
--
-- ARGV[1] order_id      of the order that will be made; no spaces
-- ARGV[2] number        its order number; 63 bits, so it stays a string throughout
-- ARGV[3] user          the buyer's id
-- ARGV[4] units         how many the buyer wants: an integer of at least 1, in plain decimal digits
-- ARGV[5] key_hash      hash of the idempotency key; "-" for none
-- ARGV[6] payload_hash  hash of what the buyer asked for; "-" for none
--
-- Returns a code; the waitlist entry or the slot that it is about ("" where there is neither); the position in the
-- waitlist, from 1, or 0; opens_ms; max_quantity.
--   joined           the buyer waits, since now or since an earlier run or request for the same number of units
--   already-waiting  the buyer waits for another number of units
--   key-reused       likewise, or the buyer ordered another number of units (position 0), under the same idempotency key
--   already-ordered  the buyer has a slot
--   ended            the buyer had a slot, filled under the same idempotency key, of an order that has ended since
--   no-waitlist      the sale has none
--   not-open         the window has not begun
--   closed           an operator closed the sale, or its window has ended
--   paused           an operator paused the sale
--   over-limit       more units than the sale allows in one order, or has at all: they could never be handed over
--   over-group-limit  with what the buyer has or waits for in the other sales of its group (how many units comes in the
--                    place of the slot), more than a buyer may have in all of them
--   available        no buyer waits, and enough units are free: order them
--   full             as many buyers wait as the sale allows
--   not-loaded       Redis does not have the sale
--   untrusted        the state of this server process is not verified: it may be old
-- Raises BADCALL, BADSALE, BADENTRY for arguments, a sale or an entry that none of our scripts writes; nothing changes.
--
-- Cost: O(log(waitlist)): two INFO, HMGET, three HGET, ZCARD, that of group.lua for a sale in a group; for a buyer who
-- joins ZADD, two HSET, ZRANK.

local sale, buyers, trusted, waitlist, waiting, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local order_id, number, user, units, key_hash, payload_hash = unpack(ARGV)

local quantity = tonumber(units)
if #ARGV ~= 6 or not quantity or quantity < 1 or quantity % 1 ~= 0 then
  return redis.error_reply('BADCALL join: 6 arguments expected, units an integer of at least 1')
end

local code
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('GET', trusted) ~= server then
  code = 'untrusted'
  return { code, '', 0, 0, 0 }
end
local fields = redis.call('HMGET', sale, 'state', 'stock', 'total', 'opens_ms', 'closes_ms', 'max_quantity', 'waitlist',
  'tickets', 'group', 'group_limit')
local state = fields[1]
if not state then
  code = 'not-loaded'
  return { code, '', 0, 0, 0 }
end
local stock, total = tonumber(fields[2]), tonumber(fields[3])
local opens_ms, closes_ms = tonumber(fields[4]), tonumber(fields[5])
local max_quantity = tonumber(fields[6])
local limit, tickets = tonumber(fields[7] or '0'), tonumber(fields[8] or '0') -- a sale of an earlier build has neither
if not (stock and total and opens_ms and closes_ms and max_quantity and limit and tickets) then
  return redis.error_reply('BADSALE join: the sale hash lacks a number')
end

-- units_under are the units of a slot that was filled under the idempotency key of this request; nil for any other slot.
local function units_under(slot)
  local had, key = string.match(slot, '^%S+ (%d+) %d+ %d+ %d+ (%S+) %S+$')
  return key ~= '-' and key == key_hash and tonumber(had) or nil
end

for earlier in string.gmatch(key_hash ~= '-' and redis.call('HGET', ended, user) or '', '[^;]+') do
  local had = units_under(earlier)
  if had then
    code = 'ended'
    if had ~= quantity then
      code = 'key-reused'
    end
    return { code, earlier, 0, opens_ms, max_quantity }
  end
end
local slot = redis.call('HGET', buyers, user)
if slot then
  code = 'already-ordered'
  if (units_under(slot) or quantity) ~= quantity then
    code = 'key-reused'
  end
  return { code, slot, 0, opens_ms, max_quantity }
end
local entry = redis.call('HGET', waiting, user)
if entry then
  local wanted, key = string.match(entry, '^%S+ (%d+) %d+ %d+ %d+ (%S+) %S+$')
  local rank = redis.call('ZRANK', waitlist, user)
  if not (wanted and rank) then
    return redis.error_reply('BADENTRY join: an entry does not have 7 fields, or no rank in the waitlist')
  elseif tonumber(wanted) == quantity then
    code = 'joined'
  elseif key ~= '-' and key == key_hash then
    code = 'key-reused'
  else
    code = 'already-waiting'
  end
  return { code, entry, rank + 1, opens_ms, max_quantity }
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local count = redis.call('ZCARD', waitlist)
if limit < 1 then
  code = 'no-waitlist'
elseif state == 'closed' or now_ms >= closes_ms then
  code = 'closed'
elseif state == 'paused' then
  code = 'paused'
elseif state ~= 'active' then
  return redis.error_reply('BADSALE join: the sale has no known state')
elseif now_ms < opens_ms then
  code = 'not-open'
elseif quantity > max_quantity or quantity > total then
  code = 'over-limit'
elseif count == 0 and quantity <= stock then
  code = 'available'
elseif count >= limit then
  code = 'full'
end
if code then
  return { code, '', 0, opens_ms, max_quantity }
end
if fields[9] then
  local held = held_in_group(sale, fields[9], { user })[user] or 0
  if held + quantity > (tonumber(fields[10] or '') or 0) then
    code = 'over-group-limit'
    return { code, string.format('%.0f', math.min(held, 2 ^ 53)), 0, opens_ms, max_quantity }
  end
end

code = 'joined'
local ticket = string.format('%.0f', tickets + 1)
entry = table.concat({ order_id, units, number, string.format('%.0f', now_ms), ticket, key_hash, payload_hash }, ' ')
redis.call('ZADD', waitlist, ticket, user)
redis.call('HSET', waiting, user, entry)
redis.call('HSET', sale, 'tickets', ticket, 'waiting', string.format('%.0f', count + 1))
return { code, entry, redis.call('ZRANK', waitlist, user) + 1, opens_ms, max_quantity }
