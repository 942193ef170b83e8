package pipeline

import (
	"fmt"

	"sluice/lua"
)

// MaxPartitions bounds PARTITIONS: every worker reads every partition, and two digits name it.
const MaxPartitions = 64

// Partition is one hash slot's worth of Redis keys. Everything that one script touches lies in one partition.
type Partition int

// String is the partition's name in keys, logs and metrics: p00, p01, …
func (p Partition) String() string { return fmt.Sprintf("p%02d", int(p)) }

// Keys builds every Redis key of an installation, one method per key. The prefix is "sluice" in production; tests
// choose their own to share a server.
type Keys struct{ Prefix string }

// DefaultKeys are the keys of a real installation.
var DefaultKeys = Keys{Prefix: "sluice"}

func (k Keys) in(p Partition, rest string) string { return k.Prefix + ":{" + p.String() + "}:" + rest }

// Sale is the hash with a sale's stock, window and counters.
func (k Keys) Sale(p Partition, saleID string) string { return k.in(p, "sale:"+saleID) }

// Buyers is the hash from user id to slot (see lua.Slot) of a sale.
func (k Keys) Buyers(p Partition, saleID string) string { return k.in(p, "buyers:"+saleID) }

// Waitlist is the sorted set of the user ids on the waitlist of a sale, by ticket.
func (k Keys) Waitlist(p Partition, saleID string) string { return k.in(p, "waitlist:"+saleID) }

// Waiting is the hash from user id to waitlist entry (see lua.WaitlistEntry) of a sale.
func (k Keys) Waiting(p Partition, saleID string) string { return k.in(p, "waiting:"+saleID) }

// Orders is the stream of order events.
func (k Keys) Orders(p Partition) string { return k.in(p, "orders") }

// OrderLock is the lock that a worker holds while it persists an order.
func (k Keys) OrderLock(p Partition, orderID string) string { return k.in(p, "lock:order:"+orderID) }

// JobLock elects the one worker that runs a background job.
func (k Keys) JobLock(job string) string { return k.Prefix + ":{jobs}:lock:job:" + job }

// Worker is the heartbeat of a consumer; it expires when the consumer dies.
func (k Keys) Worker(p Partition, name string) string { return k.in(p, "worker:"+name) }

// Trusted is "<run_id>:<replid>": the run_id of the server process whose state was verified last, and its replication
// id at that time.
func (k Keys) Trusted(p Partition) string { return k.in(p, "trusted") }

// Installation is the id of the installation that a partition belongs to. Each partition has its own, because on a
// cluster each may be lost, or come from elsewhere, by itself.
func (k Keys) Installation(p Partition) string { return k.in(p, "installation") }

// Generation is the one in which the server that has a partition was verified last.
func (k Keys) Generation(p Partition) string { return k.in(p, "generation") }

// ForVerify are the keys of the steps of a verification by the installation of this id, and of lua.ReadTrust, which
// also answers without one ("").
func (k Keys) ForVerify(p Partition, id string) lua.VerifyKeys {
	return lua.VerifyKeys{
		Trusted: k.Trusted(p), Installation: k.Installation(p), Generation: k.Generation(p), ID: id,
	}
}

// Staged is where a rebuild puts a sale's slots before it installs them all at once.
func (k Keys) Staged(p Partition, saleID, token string) string {
	return k.in(p, "staged:"+saleID+":"+token)
}

// StagedWaitlist is where a rebuild puts a sale's waitlist before it installs it all at once.
func (k Keys) StagedWaitlist(p Partition, saleID, token string) string {
	return k.Staged(p, saleID, token) + ":waitlist"
}

// StagedWaiting is the hash beside StagedWaitlist.
func (k Keys) StagedWaiting(p Partition, saleID, token string) string {
	return k.Staged(p, saleID, token) + ":waiting"
}

// Changes is the channel on which changed orders are published.
func (k Keys) Changes(p Partition) string { return k.in(p, "news") }

// Marker is written, always with the same value, to have earlier writes confirmed: a WAIT covers all writes up to the
// last one of its own connection.
func (k Keys) Marker(p Partition) string { return k.in(p, "marker") }

// OrderCounter is the counter of order numbers of a UTC day (yyyymmdd).
func (k Keys) OrderCounter(day string) string { return k.Prefix + ":{seq}:order:" + day }

// OrderCounterIssuer is "<run_id>:<replid>" of the server process that leased numbers of that counter last.
func (k Keys) OrderCounterIssuer(day string) string { return k.Prefix + ":{seq}:giver:" + day }

// ForSale are the keys of the scripts that work on one sale: those that take units (lua.Admit, lua.Resubmit), those
// that give units back (lua.Release, lua.HandOver, lua.Adjust) and those of its waitlist (lua.Join, lua.Leave).
func (k Keys) ForSale(p Partition, saleID string) lua.SaleKeys {
	return lua.SaleKeys{
		Sale: k.Sale(p, saleID), Buyers: k.Buyers(p, saleID), Orders: k.Orders(p), Trusted: k.Trusted(p),
		Waitlist: k.Waitlist(p, saleID), Waiting: k.Waiting(p, saleID), Generation: k.Generation(p),
		Ended: k.in(p, "ended:"+saleID),
	}
}
