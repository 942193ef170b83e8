-- install: replaces what Redis has of a sale by what a rebuild has found in Postgres and in the stream.
--
-- Why atomic: stock, counters and buyers belong together, and must appear at once: a sale with its stock but without
-- its buyers sells twice. Only the verification that still has the partition may write, so that one which was
-- overtaken, or whose server restarted meanwhile, can't overwrite a newer state with an old one.
--
-- Nothing is handed over here: units may be missing that lost accepts are about to take again.
--
-- The buyers are staged before, in pieces, under a key of their own: a million of them in one call would block every
-- client. So is the waitlist.
--
-- KEYS[1] trusted  "verifying:<run_id>:<replid>:<token>" while a verification has the partition
-- KEYS[2] sale     hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--                  waiting [group group_limit] [moved_in moved_out moves_done moves_settled in:<move> out:<move>]
-- KEYS[3] buyers   hash: user id -> slot
-- KEYS[4] staged   hash: user id -> slot, what the buyers are to become; absent where there are none
-- KEYS[5] waitlist         sorted set of the user ids that wait, by ticket
-- KEYS[6] waiting          hash: user id -> waitlist entry
-- KEYS[7] staged_waitlist  what the waitlist is to become; absent where no buyer waits
-- KEYS[8] staged_waiting   what the hash is to become; absent where no buyer waits
-- KEYS[9] ended            hash: user id -> slots of orders that have ended and had a key
-- KEYS[10] staged_ended    what it is to become; absent where there are none
--
-- ARGV[1] token         names the verification
-- ARGV[2] slots         how many buyers were staged
-- ARGV[3] stock         units left to sell; less than 0 where more is sold than there is
-- ARGV[4] total         units, sold ones included
-- ARGV[5] opens_ms      Unix time in ms; the first instant at which orders are accepted
-- ARGV[6] closes_ms     Unix time in ms; the first instant at which they no longer are
-- ARGV[7] max_quantity  units in one order
-- ARGV[8] state         active, paused or closed
-- ARGV[9] version       counts the changes of the sale's definition
-- ARGV[10] accepted     the sale's accept counter
-- ARGV[11] released     the sale's counter of releases
-- ARGV[12] limit        the most buyers that may wait; 0 where there is no waitlist
-- ARGV[13] tickets      the sale's counter of tickets
-- ARGV[14] entries      how many waitlist entries were staged
-- ARGV[15] enders       how many buyers with ended orders were staged
-- ARGV[16] group        of sales that have a limit together; "" where the sale is in none
-- ARGV[17] group_limit  units that a buyer may have in all sales of the group
-- ARGV[18] moved_in       units that came from other partitions of the sale (give.lua)
-- ARGV[19] moved_out      units that went to other partitions of the sale (take.lua)
-- ARGV[20] moves_done     every move of the sale up to this number has ended, and is refused from now on
-- ARGV[21] moves_settled  how often a rebuild of this partition has decided what becomes of moves
-- ARGV[22] moves          the moves above moves_done that this partition has to know: "in:<move> units out:<move> units …",
--                         "" where there are none
--
-- Returns a code:
--   installed   the sale is what was found
--   incomplete  more or less is staged than was sent: stage it again; nothing changed
--   overtaken   this verification does not have the partition; nothing changed
-- Raises BADCALL for a wrong number of arguments; nothing changes.
--
-- Cost: O(1): the old buyers are freed in the background.

local trusted, sale, buyers, staged = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local waitlist, waiting, staged_waitlist, staged_waiting = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local ended, staged_ended = KEYS[9], KEYS[10]
local token, slots, stock, total, opens_ms, closes_ms, max_quantity, state, version, accepted, released, limit, tickets,
  entries, enders, group, group_limit, moved_in, moved_out, moves_done, moves_settled, moves = unpack(ARGV)

if #ARGV ~= 22 or not (tonumber(slots) and tonumber(entries) and tonumber(enders)) or not (tonumber(moved_in)
  and tonumber(moved_out) and tonumber(moves_done) and tonumber(moves_settled)) then
  return redis.error_reply('BADCALL install: 22 arguments expected')
end
local records = {}
for record, units in string.gmatch(moves, '(%S+) (%d+)') do
  if not (string.match(record, '^in:%d+$') or string.match(record, '^out:%d+$')) then
    return redis.error_reply('BADCALL install: records of moves expected')
  end
  records[#records + 1], records[#records + 2] = record, units
end
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('GET', trusted) ~= 'verifying:' .. server .. ':' .. token then
  return 'overtaken'
end
if redis.call('HLEN', staged) ~= tonumber(slots) or redis.call('ZCARD', staged_waitlist) ~= tonumber(entries)
  or redis.call('HLEN', staged_waiting) ~= tonumber(entries)
  or redis.call('HLEN', staged_ended) ~= tonumber(enders) then
  return 'incomplete'
end

-- The mark of settle.lua stays: what Postgres had stored does not depend on what Redis has lost.
local has = redis.pcall('HGET', sale, 'settled')
local settled = type(has) == 'string' and tonumber(has) and has
join_group(sale, group)
redis.call('UNLINK', sale, buyers, waitlist, waiting, ended)
if tonumber(slots) > 0 then
  redis.call('RENAME', staged, buyers)
  redis.call('PERSIST', buyers)
end
if tonumber(enders) > 0 then
  redis.call('RENAME', staged_ended, ended)
  redis.call('PERSIST', ended)
end
if tonumber(entries) > 0 then
  redis.call('RENAME', staged_waitlist, waitlist)
  redis.call('RENAME', staged_waiting, waiting)
  redis.call('PERSIST', waitlist)
  redis.call('PERSIST', waiting)
end
redis.call('HSET', sale, 'stock', stock, 'total', total, 'opens_ms', opens_ms, 'closes_ms', closes_ms,
  'max_quantity', max_quantity, 'state', state, 'version', version, 'accepted', accepted, 'released', released,
  'waitlist', limit, 'tickets', tickets, 'waiting', entries, group_fields(group, group_limit))
if settled then
  redis.call('HSET', sale, 'settled', settled)
end
if tonumber(moves_done) > 0 or tonumber(moves_settled) > 0 or #records > 0 then -- only sales of which units were moved
  redis.call('HSET', sale, 'moved_in', moved_in, 'moved_out', moved_out, 'moves_done', moves_done,
    'moves_settled', moves_settled)
  for i = 1, #records, 1000 do
    redis.call('HSET', sale, unpack(records, i, math.min(i + 999, #records)))
  end
end
return 'installed'
