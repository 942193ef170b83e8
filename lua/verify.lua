-- verify: reports whether a partition's state was verified under the server process that has it, and carries it from
-- one step of a verification to the next.
--
-- Why atomic: a restart, a failover, a restored file or a flush puts another state, or another process, under the same
-- keys. No verification may go on from what it read before, so each step names the process and the verification that it
-- follows, and is taken only if both are still there. Of two verifications at once the later one wins, and the earlier
-- one is refused.
--
-- Only the installation that a partition belongs to may verify it: another database has none of this state, and would
-- find nothing wrong with any. A partition that belongs to no installation is taken by the first verification that
-- begins.
--
-- A server is "<run_id>:<replid>": the process, and the history of its data. A process that followed another one and
-- was made a primary again may have less than before, under the same run_id; each of the two changes gives it another
-- replication id. So does the first replica that connects, and the last one being gone for long: verifying once more
-- costs a moment.
--
-- KEYS[1] trusted  "<server>" verified; "reopening:<server>:<token>" verified, and open for lost accepts only;
--                  "verifying:<server>:<token>" being verified; anything else, or nothing: not verified
--
-- KEYS[2] installation  id of the installation that the partition belongs to; absent in a new or flushed server
-- KEYS[3] generation  that of the last verification which got so far as to reopen this server; a server that was
--                     replaced while it could not be reached still trusts itself, and this tells
--
-- ARGV[1] step   "look", "begin", "reopen" or "finish"
-- ARGV[2] token  names one verification; no spaces
-- ARGV[3] id     of the caller's installation; "-" to look at a partition of any installation
-- ARGV[4] verified_in  reopen and finish: that of the verification; of one that is taken over, the one in which the
--                     partition was verified last by Postgres' count
--
-- Returns a code, the server, and the generation (0 where there is none):
--   trusted    verified: admission is open (look, finish)
--   reopening  verified, and open for lost accepts only (look, reopen); reopen also takes it from a verification that
--              may have died after it got so far, unless another server was verified since
--   verifying  begin: this verification has the partition now, and admission is closed
--   untrusted  look: not verified, or it belongs to no installation
--   overtaken  reopen, finish: this verification does not have the partition; nothing changed
--   foreign    it belongs to another installation; nothing changed
-- Raises BADCALL for an unknown step, and for a step that changes something without an id; nothing changes.
--
-- Cost: O(1), two INFO.

local trusted, installation, generation = KEYS[1], KEYS[2], KEYS[3]
local step, token, id, verified_in = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local state = redis.call('GET', trusted)
local own = 'verifying:' .. server .. ':' .. token
local half = 'reopening:' .. server .. ':' -- and the token of the verification that may finish
local halfway = state and string.sub(state, 1, #half) == half

if not id or (id == '-' and step ~= 'look') then
  return redis.error_reply('BADCALL verify: the id of an installation is missing')
end
if not verified_in then
  return redis.error_reply('BADCALL verify: the generation is not a number')
end
local owner = redis.call('GET', installation)
local has = tonumber(redis.call('GET', generation) or 0) or 0

local code, becomes
if owner and id ~= '-' and owner ~= id then
  code = 'foreign'
elseif step == 'look' then
  code = 'untrusted'
  local owned = owner or id == '-' -- a partition without owner is verified anew, which takes it
  if owned and state == server then
    code = 'trusted'
  elseif owned and halfway then
    code = 'reopening'
  end
elseif step == 'begin' then
  code = 'verifying'
  becomes = own
elseif step == 'reopen' then
  code = 'overtaken'
  if state == own or (halfway and has >= verified_in) then
    code = 'reopening'
    becomes = half .. token
  end
elseif step == 'finish' then
  code = 'overtaken'
  if state == own or state == half .. token or state == server then
    code = 'trusted'
    becomes = server
  end
else
  return redis.error_reply('BADCALL verify: not a step')
end

if becomes then
  if not owner and step == 'begin' then
    redis.call('SET', installation, id)
  end
  if step ~= 'begin' and state ~= server and verified_in > 0 then
    has = verified_in
    redis.call('SET', generation, string.format('%.0f', has))
  end
  redis.call('SET', trusted, becomes)
end
return { code, server, has }
