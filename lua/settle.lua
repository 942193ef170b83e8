-- settle: removes entries that Postgres has committed: acknowledges them, deletes them from the stream and frees the
-- locks under which they were persisted.
--
-- Why atomic: acknowledged but not deleted, an entry stays in memory for ever; deleted but not acknowledged, it stays
-- in the pending list with nothing to replay. A lock is freed only while it still has our token, and the comparison and
-- the deletion must be one step, or the next holder's lock is freed.
--
-- An entry is deleted only if this very call acknowledged it. After a group was lost and made anew, an entry that a
-- slow worker settles is undelivered again; deleting it would hide it from the group's own count (its lag becomes
-- unknown), while leaving it costs one more idempotent delivery. Run twice, the second run finds nothing to do.
--
-- KEYS[1] orders    stream of order events
-- KEYS[+1] lock     one for each lock held, 0 to 1000 of them
--
-- ARGV[1] group     the consumer group
-- ARGV[2] token     the value that the locks have while they are ours
-- then for each entry, 1 to 1000 of them:
-- ARGV[+1] entry_id  of the stream
--
-- Returns the number of entries acknowledged now.
-- Raises BADCALL if there is no entry, or its id is not one; nothing changes.
--
-- Cost: O(entries + locks): one XACK for each entry, one XDEL, one MGET, one DEL. It needs no memory, so it works on a
-- server that is full.

local orders = KEYS[1]
local group, token = ARGV[1], ARGV[2]
local call = redis.call -- one lookup instead of one for each entry

if #ARGV < 3 then
  return redis.error_reply('BADCALL settle: no entries')
end

for i = 3, #ARGV do -- before the first write: a bad id in the middle would end a half-done batch
  if not string.find(ARGV[i], '^%d+%-%d+$') then
    return redis.error_reply('BADCALL settle: not an entry id')
  end
end

local done = {}
for i = 3, #ARGV do
  local entry_id = ARGV[i]
  if call('XACK', orders, group, entry_id) == 1 then
    done[#done + 1] = entry_id
  end
end
if #done > 0 then
  call('XDEL', orders, unpack(done))
end

if #KEYS > 1 then
  local values = call('MGET', unpack(KEYS, 2))
  local ours = {}
  for i = 2, #KEYS do
    if values[i - 1] == token then
      ours[#ours + 1] = KEYS[i]
    end
  end
  if #ours > 0 then
    call('DEL', unpack(ours))
  end
end
return #done
