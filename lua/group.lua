-- group: the limit of a buyer over several sales. It is no script of its own: its functions are the head of the scripts
-- that make a sale one of a group (load, install), of those that take units (admit, join), and of retire, see group.go.
--
-- Why atomic: what a buyer has in the other sales must not change between the check and the accept. The sales of a
-- group are on the same partitions, so that a buyer's slots and entries in all of them are seen in one step. What a
-- buyer waits for counts as taken: a hand-over then checks nothing, and can't exceed the limit.
--
-- Only slots and entries are counted, and no counter is kept beside them: whatever frees, loses or rebuilds them has
-- the limit right as well.
--
-- Cost: one SMEMBERS, and an HGET and two HMGET for each other sale of the group.

-- key_beside is another key of the partition of a sale, and the sale's id; both are nil where it is no sale's key.
local function key_beside(sale, kind)
  local prefix, id = string.match(sale, '^(.*:)sale:([^:]+)$')
  return prefix and prefix .. kind, id
end

-- held_in_group returns the units that each of some users has, or waits for, in the other sales of a group. A user may
-- be named twice. What a slot or an entry that can't be read stands for is more than any limit. Nobody who waits for a
-- sale that was closed for good is served any more.
local function held_in_group(sale, group, users)
  local members, own = key_beside(sale, 'group:' .. group)
  local held = {}
  for _, other in ipairs(redis.call('SMEMBERS', members)) do
    local kinds = { 'buyers:', 'waiting:' }
    if other == own then
      kinds = {}
    elseif redis.call('HGET', key_beside(sale, 'sale:' .. other), 'state') == 'closed' then
      kinds = { 'buyers:' }
    end
    for _, kind in ipairs(kinds) do
      local counted = {}
      for i, value in ipairs(redis.call('HMGET', key_beside(sale, kind .. other), unpack(users))) do
        local user = users[i]
        if value and not counted[user] then
          counted[user] = true
          held[user] = (held[user] or 0) + (tonumber(string.match(value, '^%S+ (%d+) ') or '') or math.huge)
        end
      end
    end
  end
  return held
end

-- join_group makes a sale one of a group. It goes before everything else that is written: a member that is no sale does
-- no harm, and a sale that is no member is one whose units don't count.
local function join_group(sale, group)
  if group ~= '' then
    local members, id = key_beside(sale, 'group:' .. group)
    redis.call('SADD', members, id)
  end
end

-- group_fields are the fields of a sale that say which group it is in; none where it is in none.
local function group_fields(group, group_limit)
  if group ~= '' then
    return 'group', group, 'group_limit', group_limit
  end
end
