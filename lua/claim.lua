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
-- ARGV[3] idle_ms   entries that were delivered less than this ago stay where they are, in ms
-- then for each entry, 1 to 1000 of them:
-- ARGV[+1] entry_id  of the stream
--
-- Returns two arrays: the entries claimed, as XCLAIM returns them, and the ids of the lost: pending, without an event.
-- Those are acknowledged, so that each is reported once.
-- Raises BADCALL for a wrong number of arguments; nothing changes.
--
-- Cost: O(entries): one XRANGE for each, one XCLAIM.

local orders = KEYS[1]
local group, consumer, idle_ms = unpack(ARGV, 1, 3)

if #ARGV < 4 then
  return redis.error_reply('BADCALL claim: at least one entry expected')
end

local lost = {}
local call = { 'XCLAIM', orders, group, consumer, idle_ms }
for i = 4, #ARGV do
  local entry_id = ARGV[i]
  if #redis.call('XRANGE', orders, entry_id, entry_id) > 0 then
    call[#call + 1] = entry_id
  elseif #redis.call('XPENDING', orders, group, entry_id, entry_id, 1) > 0 then
    lost[#lost + 1] = entry_id
  end
end

local claimed = {}
if #call > 5 then
  claimed = redis.call(unpack(call))
end
if #lost > 0 then
  redis.call('XACK', orders, group, unpack(lost))
end
return { claimed, lost }
