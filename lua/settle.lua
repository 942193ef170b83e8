-- settle: ends the life of entries that Postgres has committed: acknowledges them, deletes them from the stream and
-- frees the locks under which they were persisted.
--
-- Why atomic: acknowledged but not deleted, an entry stays in memory for ever; deleted but not acknowledged, it stays
-- in the pending list with nothing to replay. A lock is freed only while it still holds our token, and the comparison
-- and the deletion must not be parted, or the next holder's lock is freed.
--
-- An entry is deleted only if this very call acknowledged it. After a group was lost and made anew, an entry that a
-- slow worker settles is undelivered again; deleting it would hide it from the group's own count (its lag becomes
-- unknown), while leaving it costs one more idempotent delivery. Run twice, the second run finds nothing to do.
--
-- KEYS[1] orders    stream of order events
-- KEYS[+1] lock     one for each lock held, 0 to 1000 of them
--
-- ARGV[1] group     the consumer group
-- ARGV[2] entries   how many entry ids follow, 1 to 1000
-- then for each entry:
-- ARGV[+1] entry_id  of the stream
-- then for each lock, in the order of KEYS:
-- ARGV[+1] token     the value that the lock has while it is ours
--
-- Returns the number of entries acknowledged now.
-- Raises BADCALL if counts do not add up or an entry id is not one; nothing changes.
--
-- Cost: O(entries + locks): one XACK for each entry, one XDEL, one MGET, one DEL. It needs no memory, so it works on a
-- server that is full.

local orders = KEYS[1]
local group, entries = ARGV[1], tonumber(ARGV[2])
local locks = #KEYS - 1

if not entries or entries < 1 or #ARGV ~= 2 + entries + locks then
  return redis.error_reply('BADCALL settle: arguments do not match the counts')
end

for i = 3, 2 + entries do -- before the first write: a bad id in the middle would end a half-done batch
  if not string.find(ARGV[i], '^%d+%-%d+$') then
    return redis.error_reply('BADCALL settle: not an entry id')
  end
end

local done = {}
for i = 1, entries do
  local entry_id = ARGV[2 + i]
  if redis.call('XACK', orders, group, entry_id) == 1 then
    done[#done + 1] = entry_id
  end
end
if #done > 0 then
  redis.call('XDEL', orders, unpack(done))
end

if locks > 0 then
  local values = redis.call('MGET', unpack(KEYS, 2))
  local ours = {}
  for i = 1, locks do
    local token = ARGV[2 + entries + i]
    if values[i] == token then
      ours[#ours + 1] = KEYS[1 + i]
    end
  end
  if #ours > 0 then
    redis.call('DEL', unpack(ours))
  end
end
return #done
