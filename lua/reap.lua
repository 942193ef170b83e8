-- reap: removes a dead consumer from the group of a stream.
--
-- Why atomic: removing a consumer destroys its pending entries, and with them accepted orders. That it has none, and
-- that it has no heartbeat, must be true at the instant of the removal.
--
-- A worker must set its heartbeat before it first reads; else it can be reaped between the two (harmless: a consumer
-- comes back with its next read).
--
-- KEYS[1] orders     stream of order events
-- KEYS[2] heartbeat  string that expires when its worker dies
--
-- ARGV[1] group     the consumer group
-- ARGV[2] consumer  its name in the group
--
-- Returns a code:
--   removed  the consumer is gone
--   alive    its heartbeat is there; nothing changed
--   pending  it has pending entries, to be claimed by others first; nothing changed
--   absent   there is no such consumer, group or stream
--
-- Cost: O(consumers of the group).

local orders, heartbeat = KEYS[1], KEYS[2]
local group, consumer = ARGV[1], ARGV[2]

if redis.call('EXISTS', heartbeat) == 1 then
  return 'alive'
end
local consumers = redis.pcall('XINFO', 'CONSUMERS', orders, group)
if consumers.err then
  if string.find(consumers.err, 'NOGROUP', 1, true) or string.find(consumers.err, 'no such key', 1, true) then
    return 'absent'
  end
  return consumers
end

for _, fields in ipairs(consumers) do
  local about = {} -- by name, not by position: newer servers return more fields
  for i = 1, #fields, 2 do
    about[fields[i]] = fields[i + 1]
  end
  if about.name == consumer then
    if about.pending > 0 then
      return 'pending'
    end
    redis.call('XGROUP', 'DELCONSUMER', orders, group, consumer)
    return 'removed'
  end
end
return 'absent'
