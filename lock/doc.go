// Package lock holds distributed locks and synchronizers on Redis. docs/locks.md tells, step by step, why they are as they
// are; this is what lies where, and what is promised.
//
//	Mutex, FairMutex      one holder, re-entrant by Owner, with a fence      mutex.go
//	RWMutex               many readers or one writer, in order of arrival    rwmutex.go
//	Semaphore             at most n permits, held like a lock                semaphore.go
//	ExpirableSemaphore    the same, each permit with an id and an end        expirable.go
//	CountDownLatch        opens when n parties have arrived                  latch.go
//	All                   several locks, in an order that can't deadlock     all.go
//	Quorum                one lock on a majority of independent servers      quorum.go
//	TryLockMany           a batch of plain locks in one round trip           many.go
//	RunOnce               a job that many nodes schedule and one runs        once.go
//
// # Data
//
//	mutex         string  "<fence 16 digits><mark><owner> <hold> …", until the lease ends; mark " ", "+" somebody waits, "-" free
//	its queue     zset    "<owner> <hold> <channel>" by arrival; gone when nobody moves for three minutes
//	rw, semaphore zset    "r <hold>", "w <hold>" or "p <hold> <n>" by end of lease; with a queue of the same kind
//	rw            string  the last writer's fence
//	latch         hash    count, and a field for each party that has arrived; with a set of who waits
//	TryLockMany   string  the batch's token: cheaper than a mutex, and another kind; don't mix them on one key
//
// Derived keys lie in the hash slot of the key that they belong to, so all of it works on a cluster. No key lives for ever.
//
// # What is promised
//
// A lock is a lease. Its holder's context ends, with the cause ErrLeaseLost, before the server lets anybody else have it,
// whatever the network does: the deadline counts from before the request was sent, by this machine's monotonic clock. A client
// renews what it holds, all of it in one batch, at a third of the lease. Every script may run twice.
//
// Not promised: that a process which is paused stops in time (it goes on for an instant when it wakes), and that a server
// which fails over, is flushed, or has its clock set forward remembers its locks. That is what the fence is for: it rises with
// every holder, and a store that keeps the highest one refuses who comes late. Nothing may rest on a lock alone.
package lock
