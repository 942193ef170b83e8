-- retire: removes a sale that is over from Redis, with its buyers, its waitlist and the keys of its ended orders, and
-- takes it out of its limit group.
--
-- Why atomic: all of it must go at once, because what is left of a sale looks like one that has lost something. And an
-- operator may move the window of the sale, which is rebuilt then: what is newer than the decision to remove it stays.
--
-- KEYS[1] sale      hash: stock total opens_ms closes_ms max_quantity state version accepted released waitlist tickets
--                   waiting [group group_limit]
-- KEYS[2] buyers    hash: user id -> slot
-- KEYS[3] waitlist  sorted set of the user ids that wait, by ticket
-- KEYS[4] waiting   hash: user id -> waitlist entry
-- KEYS[5] ended     hash: user id -> slots of orders that have ended and had a key
--
-- ARGV[1] version  of the sale's definition when it was decided that it leaves Redis
-- ARGV[2] group    of sales that have a limit together; "" where the sale is in none
--
-- Returns a code:
--   retired  the sale is gone
--   absent   it was not there; what may have been left of it is gone
--   newer    Redis has a newer definition: the sale is to be sold again; nothing changed
--   open     its window has not ended by this server's clock; nothing changed
-- Raises BADCALL, BADSALE for arguments or a sale that none of our scripts writes; nothing changes.
--
-- Cost: O(1): the memory is freed in the background.

local sale, buyers, waitlist, waiting, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local version, group = tonumber(ARGV[1]), ARGV[2]
local members, id = key_beside(sale, 'group:' .. (group or ''))
if #ARGV ~= 2 or not version or not id then
  return redis.error_reply('BADCALL retire: a sale, a version and a group are expected')
end

local fields = redis.call('HMGET', sale, 'state', 'version', 'closes_ms')
local code = 'absent'
if fields[1] then
  local has, closes_ms = tonumber(fields[2]), tonumber(fields[3])
  if not (has and closes_ms) then
    return redis.error_reply('BADSALE retire: the sale hash lacks a number')
  end
  local time = redis.call('TIME')
  code = 'retired'
  if has > version then
    code = 'newer'
  elseif time[1] * 1000 + math.floor(time[2] / 1000) < closes_ms then
    code = 'open'
  end
end
if code == 'newer' or code == 'open' then
  return code
end
redis.call('UNLINK', sale, buyers, waitlist, waiting, ended)
if group ~= '' then
  redis.call('SREM', members, id)
end
return code
