-- moves: what the two halves of a move of units between partitions have in common. It is no script of its own: its
-- functions are the head of take and give, see moves.go.
--
-- Why atomic: a server that is not verified may have forgotten what it took or gave, so trust is read in the step that
-- acts on it. A record is forgotten in the step that raises the number below which every move is refused; one without
-- the other lets a call that comes late act a second time.
--
-- Cost: two INFO and two GET; one HGETALL and one HDEL where moves are forgotten.

-- verified_in reports whether the state of this server is verified, and returns its generation.
local function verified_in(trusted, generation, fence)
  local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
    string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  local verified = tonumber(redis.call('GET', generation) or 0) or 0
  return redis.call('GET', trusted) == server and verified >= fence, verified
end

-- ended_moves are the fields of a sale that record moves up to a number; nil where it has forgotten those already.
local function ended_moves(sale, moves_done, done)
  if done <= moves_done then
    return nil
  end
  local all, fields = redis.call('HGETALL', sale), {}
  for i = 1, #all, 2 do
    local move = tonumber(string.match(all[i], '^out:(%d+)$') or string.match(all[i], '^in:(%d+)$') or '')
    if move and move <= done then
      fields[#fields + 1] = all[i]
    end
  end
  return fields
end

-- forget_moves raises the number first: a record too many does no harm, and one too few does.
local function forget_moves(sale, ended, done)
  if ended then
    redis.call('HSET', sale, 'moves_done', string.format('%.0f', done))
    for i = 1, #ended, 1000 do
      redis.call('HDEL', sale, unpack(ended, i, math.min(i + 999, #ended)))
    end
  end
end
