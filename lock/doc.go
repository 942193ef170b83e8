// Package lock provides distributed locks and synchronizers on Redis. docs/locks.md explains step by step why they are
// built as they are; this is what is where, and what is promised.
//
//	Mutex, FairMutex      one holder, re-entrant by Owner, with a fence      mutex.go
//	RWMutex               many readers or one writer, in order of arrival    rwmutex.go
//	Semaphore             at most n permits, each held like a lock           semaphore.go
//	ExpirableSemaphore    the same, each permit with an id and an end        expirable_semaphore.go
//	CountDownLatch        opens when n parties have arrived                  count_down_latch.go
//	All                   several locks, in an order that can't deadlock     all.go
//	Quorum                one lock on a majority of independent servers      quorum.go
//	TryLockMany           a batch of plain locks in one round trip           try_lock_many.go
//	RunOnce               a job that many nodes schedule and one runs        run_once.go
//
// # Data
//
//	mutex         string  "<fence 16 digits><mark><owner> <hold> …" until the lease ends; mark " ", "+" waiters, "-" free
//	its queue     zset    "<owner> <hold> <channel>" by arrival; expires after three minutes without a change
//	rw, semaphore zset    "r <hold>", "w <hold>" or "p <hold> <n>" by end of lease; with a queue of the same kind
//	rw            string  the last writer's fence
//	latch         hash    count, and a field for each party that has arrived; with a set of waiters
//	TryLockMany   string  the batch's token: cheaper than a mutex, and of another kind; don't mix them on one key
//
// Derived keys lie in the hash slot of the key that they belong to, so all of this works on a cluster. Every key
// expires.
//
// # What is promised
//
// A lock is a lease. Its holder's context ends, with the cause ErrLeaseLost, before the server lets anybody else have
// the lock, whatever the network does: the deadline counts from before the request was sent, by this machine's
// monotonic clock. A client renews all that it holds in one batch, at a third of the lease. Every script may run twice.
//
// Not promised: that a process which is suspended stops in time (it goes on for an instant when it wakes), and that a
// server which fails over, is flushed, or has its clock set forward remembers its locks. The fence is for these cases:
// it rises with every holder, and a store that keeps the highest fence can refuse a late holder. Nothing may rest on a
// lock alone.
package lock
