-- take: takes free units of a sale out of its partition, for a move to another partition of the same sale.
--
-- Why atomic: the units and the record of the move change together. A move whose units are gone and which is not on
-- record would take again when it is repeated; one that is on record without its units would make units of nothing.
--
-- Moves of a sale are numbered from 1 by Postgres, in the order in which they are committed. Run twice for the same
-- move, the second run answers like the first and writes nothing, whatever it wants: a move that took nothing never
-- takes anything. So who wants to know how a move ended that another process has begun calls with 0 units wanted.
--
-- While buyers wait here, free units are theirs, and nothing is taken.
--
-- KEYS[1] sale        hash: state stock waiting [moved_out moves_done out:<move>]
-- KEYS[2] trusted     "<run_id>:<replid>" of the server process, and of its history, that was verified
-- KEYS[3] generation  the verification of this server that was begun last, by Postgres' count
--
-- ARGV[1] move    the number of the move
-- ARGV[2] wanted  units, at most; 0 or more
-- ARGV[3] done    every move of the sale up to this number has ended, as Postgres has it; less than move. What is
--                 recorded of those is forgotten
-- ARGV[4] fence   the generation in which the partition was verified last, as far as the caller knows
--
-- Returns a code, the units that the move has taken and the generation:
--   taken       so many units are out of this partition, since now or since an earlier run; 0: the move is void
--   finished    the move has ended before; nothing changed, and the units are not known here any more
--   not-loaded  Redis does not have the sale; nothing changed
--   untrusted   the state of this server process is not verified, or another was verified since; nothing changed
-- Raises BADCALL, BADSALE for arguments or a sale that none of our scripts writes; nothing changes.
--
-- Cost: O(1): two INFO, GET, HMGET, HSET; O(moves under way) where done has grown.

local sale, trusted, generation = KEYS[1], KEYS[2], KEYS[3]
local move, wanted, done, fence = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if #ARGV ~= 4 or not (move and wanted and done and fence) or wanted < 0 or wanted % 1 ~= 0 or done >= move then
  return redis.error_reply('BADCALL take: a move, units, an earlier move and a fence are expected')
end

local code
local known, verified = verified_in(trusted, generation, fence)
if not known then
  code = 'untrusted'
  return { code, 0, 0 }
end
local out = string.format('out:%.0f', move)
local fields = redis.call('HMGET', sale, 'state', 'stock', 'waiting', 'moved_out', 'moves_done', out)
if not fields[1] then
  code = 'not-loaded'
  return { code, 0, verified }
end
local stock, waiting = tonumber(fields[2]), tonumber(fields[3] or '0')
local moved_out, moves_done = tonumber(fields[4] or '0'), tonumber(fields[5] or '0')
local earlier = tonumber(fields[6] or '0')
if not (stock and waiting and moved_out and moves_done and earlier) then
  return redis.error_reply('BADSALE take: the sale hash has no number where one belongs')
end
code = 'taken'
if fields[6] then
  return { code, earlier, verified }
elseif move <= moves_done then
  code = 'finished'
  return { code, 0, verified }
end

local units = math.min(math.max(stock, 0), wanted)
if waiting > 0 then
  units = 0
end
local ended = ended_moves(sale, moves_done, done)
redis.call('HSET', sale, 'stock', string.format('%.0f', stock - units),
  'moved_out', string.format('%.0f', moved_out + units), out, string.format('%.0f', units))
forget_moves(sale, ended, done)
return { code, units, verified }
