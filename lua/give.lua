-- give: adds the units of a move, taken on another partition of the sale (take.lua), to this one. They go to buyers who
-- wait here first (handover.lua).
--
-- Why atomic: the units and the record of the move change together, or a move that is repeated after a crash gives
-- twice. And units that are free for an instant before those who wait get them can be taken by any request.
--
-- Run twice for the same move, the second run answers like the first and writes nothing.
--
-- KEYS[1] sale        hash: state stock accepted opens_ms closes_ms waiting [moved_in moves_done in:<move>]
-- KEYS[2] buyers      hash: user id -> slot
-- KEYS[3] trusted     "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[4] orders      stream of order events
-- KEYS[5] waitlist    sorted set of the user ids that wait, by ticket
-- KEYS[6] waiting     hash: user id -> waitlist entry
-- KEYS[7] generation  the verification of this server that was begun last, by Postgres' count
--
-- ARGV[1] move        the number of the move
-- ARGV[2] units       that it has taken, as Postgres has it: at least 1
-- ARGV[3] done        every move of the sale up to this number has ended, as Postgres has it; less than move. What is
--                     recorded of those is forgotten
-- ARGV[4] fence       the generation in which the partition was verified last, as far as the caller knows
-- ARGV[5] sale_id     goes into the events; KEYS[1] is what identifies the sale
-- ARGV[6] max_events  entries that the stream may have, after which nothing is handed over: at least 1
--
-- Returns a code, the generation, then two arrays: the ids of the orders that were made for buyers who waited (at most
-- 100: if there are so many, more can be handed over), and the users who were taken off the waitlist because their
-- entry or slot can't be right:
--   given       the units are in this partition, since now or since an earlier run
--   finished    the move has ended before; nothing changed
--   not-loaded  Redis does not have the sale; nothing changed
--   untrusted   the state of this server process is not verified, or another was verified since; nothing changed
-- Raises BADCALL, BADSALE, BADMOVE for arguments or a sale that none of our scripts writes, and for a move that gave
-- another number of units; nothing changes.
--
-- Cost: O(1): two INFO, GET, HMGET, HSET; O(moves under way) where done has grown; while buyers wait, that of
-- handover.lua besides.

local sale, buyers, trusted, orders, waitlist, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local generation = KEYS[7]
local move, units, done, fence = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local sale_id, max_events = ARGV[5], tonumber(ARGV[6])
if #ARGV ~= 6 or not (move and units and done and fence and max_events) or units < 1 or units % 1 ~= 0
  or done >= move then
  return redis.error_reply('BADCALL give: a move, units, an earlier move, a fence, a sale and max_events are expected')
end

local code
local known, verified = verified_in(trusted, generation, fence)
if not known then
  code = 'untrusted'
  return { code, 0, {}, {} }
end
local into = string.format('in:%.0f', move)
local fields = redis.call('HMGET', sale, 'state', 'stock', 'accepted', 'opens_ms', 'closes_ms', 'waiting', 'moved_in',
  'moves_done', into)
if not fields[1] then
  code = 'not-loaded'
  return { code, verified, {}, {} }
end
local stock, accepted = tonumber(fields[2]), tonumber(fields[3])
local opens_ms, closes_ms = tonumber(fields[4]), tonumber(fields[5])
local moved_in, moves_done = tonumber(fields[7] or '0'), tonumber(fields[8] or '0')
if not (stock and accepted and opens_ms and closes_ms and moved_in and moves_done) then
  return redis.error_reply('BADSALE give: the sale hash has no number where one belongs')
end
code = 'given'
if fields[9] then
  if tonumber(fields[9]) ~= units then
    return redis.error_reply('BADMOVE give: the move gave another number of units')
  end
  return { code, verified, {}, {} }
elseif move <= moves_done then
  code = 'finished'
  return { code, verified, {}, {} }
end

stock = stock + units
local keys = { sale = sale, buyers = buyers, orders = orders, waitlist = waitlist, waiting = waiting }
local plan = plan_hand_over(keys, {
  state = fields[1], stock = stock, accepted = accepted, opens_ms = opens_ms, closes_ms = closes_ms,
  waiting = tonumber(fields[6]),
}, max_events)
local ended = ended_moves(sale, moves_done, done)
redis.call('HSET', sale, 'stock', string.format('%.0f', stock), 'moved_in', string.format('%.0f', moved_in + units),
  into, string.format('%.0f', units))
hand_over(keys, sale_id, plan)
forget_moves(sale, ended, done)
return { code, verified, plan.handed, plan.dropped }
