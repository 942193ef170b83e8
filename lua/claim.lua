-- claim: takes pending entries over from a consumer that is dead or lost them, and returns which of them are lost for
-- good.
--
-- Why atomic: XCLAIM silently drops pending entries whose event was deleted. Whether an event is gone although it was
-- never acknowledged can only be seen in one step with the claim: a moment later its consumer may have settled it.
--
-- KEYS[1] orders    stream of order events
--
-- ARGV[1] group     the consumer group
-- ARGV[2] consumer  the one that takes over
-- ARGV[3] idle_ms   entries that were delivered less than this ago stay where they are, in ms; see deliveries
-- then for each entry, 1 to 1000 of them:
-- ARGV[+1] entry_id    of the stream
-- ARGV[+2] deliveries  0; or how often it was delivered when its caller began to wait: the idle time then does not
--                      matter, because it is wrong where the clock has jumped since the delivery, but an entry that
--                      was delivered once more stays where it is
--
-- Returns two arrays: the entries claimed, as XCLAIM returns them, and the ids of the lost: pending, without an event.
-- Those are acknowledged, so that each is reported once.
-- Raises BADCALL for a wrong number of arguments; nothing changes.
--
-- Cost: O(entries): one XRANGE for each, an XPENDING for each with deliveries, two XCLAIM.

local orders = KEYS[1]
local group, consumer, idle_ms = unpack(ARGV, 1, 3)

if #ARGV < 5 or #ARGV % 2 == 0 then
  return redis.error_reply('BADCALL claim: at least one entry expected, and 2 arguments for each')
end

local lost = {}
local idle = { 'XCLAIM', orders, group, consumer, idle_ms }
local same = { 'XCLAIM', orders, group, consumer, 0 }
for i = 4, #ARGV, 2 do
  local entry_id, deliveries = ARGV[i], tonumber(ARGV[i + 1])
  if #redis.call('XRANGE', orders, entry_id, entry_id) > 0 then
    if deliveries == 0 then
      idle[#idle + 1] = entry_id
    else
      local now = redis.call('XPENDING', orders, group, entry_id, entry_id, 1)[1]
      if now and now[4] == deliveries then
        same[#same + 1] = entry_id
      end
    end
  elseif #redis.call('XPENDING', orders, group, entry_id, entry_id, 1) > 0 then
    lost[#lost + 1] = entry_id
  end
end

local claimed = {}
for _, call in ipairs({ idle, same }) do
  if #call > 5 then
    for _, entry in ipairs(redis.call(unpack(call))) do
      claimed[#claimed + 1] = entry
    end
  end
end
if #lost > 0 then
  redis.call('XACK', orders, group, unpack(lost))
end
return { claimed, lost }
