-- unlock_many: frees those of a batch of locks that are still held under our token.
--
-- Why atomic: between comparing and deleting, a lease can end and another holder begin; the deletion would then free a
-- lock that is not ours.
--
-- KEYS[+1] lock   one for each lock, 1 to 1000 of them; a string with its holder's token
--
-- ARGV[1] token  the value of the locks while they are ours; compared whole
--
-- Returns the number of locks freed now.
--
-- Cost: O(locks): one MGET, one DEL. It needs no memory, so it works on a server that is full.

local token = ARGV[1]

local ours = {}
for i, value in ipairs(redis.call('MGET', unpack(KEYS))) do
  if value == token then
    ours[#ours + 1] = KEYS[i]
  end
end
if #ours == 0 then
  return 0
end
return redis.call('DEL', unpack(ours))
