// Package lua holds the scripts that change order state in Redis, and one typed Go call for each. One operation is
// three files: x.lua with the script, x.go with the call, x_test.go with its tests.
//
//	Admit    a batch of buyers asks for units of a sale
//	Join     a buyer joins the waitlist of a sale that is sold out
//	Leave    a buyer leaves the waitlist
//	Claim    pending entries of a dead consumer change hands
//	Settle   entries that Postgres has committed leave the stream
//	Release  ended orders give back stock and slots
//	Passed   is everything settled that was in the stream at some instant?
//	Reap     a dead consumer leaves the group
//	Load     a sale is put into Redis
//	Adjust   a sale in Redis follows its newer definition
//	take     units of a sale leave a partition, for another one; nothing calls this yet
//	give     they arrive there; nothing calls this yet
//	Lease    a block of order numbers
//	Look, …  the steps of a verification, and what they leave trusted
//	Retire   a sale that is over leaves Redis
//	Install  a rebuilt sale replaces what Redis has of it
//
// A script is atomic, and every script may run twice: the second run changes nothing. So a caller that lost a reply
// simply calls again. That is why the calls do not retry by themselves, except that a server that has forgotten a
// script (restart, failover, SCRIPT FLUSH) is sent its text.
//
// The header of each script is its contract: keys, arguments with units, every code that it returns, and its cost. Keys
// come from the caller and lie in one hash slot. The package imports nothing of ours.
package lua
