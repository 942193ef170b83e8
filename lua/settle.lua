-- settle: removes entries that Postgres has committed: acknowledges them, deletes them from the stream and frees the
-- locks under which they were persisted.
--
-- Why atomic: acknowledged but not deleted, an entry stays in memory for ever; deleted but not acknowledged, it stays
-- in the pending list with nothing to replay. A lock is freed only while it still has our token, and the comparison and
-- the deletion must be one step, or the next holder's lock is freed.
--
-- An entry that this very call did not acknowledge is deleted only if the group is past it. After a group was lost and
-- made anew, an entry that a slow worker settles is undelivered again; deleting it would hide it from the group's own
-- count (its lag becomes unknown), while leaving it costs one more idempotent delivery. One that the group is past and
-- that is not pending was settled before: by the first run of this call, or by another worker.
--
-- What is settled is marked in its sale: how many rows Postgres had stored of it by then. A Postgres that says less
-- later was restored, or is a standby that lagged. A sale that is not there is not marked, and a mark is never lowered.
--
-- KEYS[1] orders    stream of order events
-- then for each sale to mark, 0 to 1000 of them:
-- KEYS[+1] sale     hash: state settled
-- then for each lock held, 0 to 1000 of them:
-- KEYS[+1] lock     of an order
--
-- ARGV[1] group     the consumer group
-- ARGV[2] token     the value that the locks have while they are ours
-- ARGV[3] sales     how many sales to mark
-- then for each sale:
-- ARGV[+1] settled  rows that Postgres had stored of it on this partition, by its own count
-- then for each entry, 1 to 1000 of them:
-- ARGV[+1] entry_id  of the stream
--
-- Returns the number of entries acknowledged now.
-- Raises BADCALL if there is no entry, its id is not one, or a mark is no number; nothing changes.
--
-- Cost: O(entries + locks + sales): one XACK, one XDEL, one MGET, one DEL, and an HMGET and an HSET for each sale; one
-- XINFO where others settled some. XACK goes first, which lets it run on a server that is full; a mark takes few bytes.

local orders = KEYS[1]
local group, token, sales = ARGV[1], ARGV[2], tonumber(ARGV[3])
local fixed = 3
local call = redis.call -- one lookup instead of one for each entry

-- parts are the two numbers of an entry id.
local function parts(entry_id)
  local ms, n = string.match(entry_id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

-- delivered is the id of the last entry that the group was given, by its description; "0-0" where there is none.
local function delivered(groups)
  for _, fields in ipairs(groups) do
    local found, last = false, '0-0'
    for i = 1, #fields, 2 do
      found = found or fields[i] == 'name' and fields[i + 1] == group
      last = fields[i] == 'last-delivered-id' and fields[i + 1] or last
    end
    if found then
      return parts(last)
    end
  end
  return 0, 0
end

if not sales or sales < 0 or #KEYS < 1 + sales or #ARGV < fixed + sales + 1 then
  return redis.error_reply('BADCALL settle: no entries')
end
for i = fixed + 1, fixed + sales do
  if not tonumber(ARGV[i]) then
    return redis.error_reply('BADCALL settle: a mark is no number')
  end
end

for i = fixed + sales + 1, #ARGV do -- before the first write: a bad id in the middle would end a half-done batch
  if not string.find(ARGV[i], '^%d+%-%d+$') then
    return redis.error_reply('BADCALL settle: not an entry id')
  end
end

local entries = { unpack(ARGV, fixed + sales + 1) }
local acked = call('XACK', orders, group, unpack(entries))
if acked < #entries then
  local past = {}
  -- pcall: a stream that is gone has no groups, and nothing to delete
  local last_ms, last_n = delivered(redis.pcall('XINFO', 'GROUPS', orders))
  for _, entry_id in ipairs(entries) do
    local ms, n = parts(entry_id)
    if ms < last_ms or ms == last_ms and n <= last_n then
      past[#past + 1] = entry_id
    end
  end
  entries = past
end
if #entries > 0 then
  call('XDEL', orders, unpack(entries))
end

for i = 1, sales do
  local sale, settled = KEYS[1 + i], ARGV[fixed + i]
  -- pcall: a key that is no sale must not keep its orders' locks; a verification finds it
  local has = redis.pcall('HMGET', sale, 'state', 'settled')
  if not has.err and has[1] and tonumber(settled) > (tonumber(has[2]) or 0) then
    call('HSET', sale, 'settled', settled)
  end
end

local first = 2 + sales
if #KEYS >= first then
  local values = call('MGET', unpack(KEYS, first))
  local ours = {}
  for i = first, #KEYS do
    if values[i - first + 1] == token then
      ours[#ours + 1] = KEYS[i]
    end
  end
  if #ours > 0 then
    call('DEL', unpack(ours))
  end
end
return acked
