package pipeline

import "fmt"

// Group is the consumer group of every order stream.
const Group = "workers"

// MaxPartitions bounds PARTITIONS: every worker reads every partition, and two digits name it.
const MaxPartitions = 64

// Partition is one hash slot's worth of Redis keys. Everything that one script touches lies in one partition.
type Partition int

// String is the partition's name in keys, logs and metrics: p00, p01, …
func (p Partition) String() string { return fmt.Sprintf("p%02d", int(p)) }

// Keys builds every Redis key of an installation, one method per key (DESIGN section 4). The prefix is "sluice" in
// production; tests choose their own to share a server.
type Keys struct{ Prefix string }

// DefaultKeys are the keys of a real installation.
var DefaultKeys = Keys{Prefix: "sluice"}

func (k Keys) in(p Partition, rest string) string { return k.Prefix + ":{" + p.String() + "}:" + rest }

// Sale is the hash with a sale's stock, window and counters.
func (k Keys) Sale(p Partition, saleID string) string { return k.in(p, "sale:"+saleID) }

// Buyers is the hash from user id to slot (see lua.Slot) of a sale.
func (k Keys) Buyers(p Partition, saleID string) string { return k.in(p, "buyers:"+saleID) }

// Orders is the stream of order events.
func (k Keys) Orders(p Partition) string { return k.in(p, "orders") }

// OrderLock is the lock that a worker holds while it persists an order.
func (k Keys) OrderLock(p Partition, orderID string) string { return k.in(p, "lock:order:"+orderID) }

// JobLock elects the one worker that runs a background job.
func (k Keys) JobLock(job string) string { return k.Prefix + ":{jobs}:lock:job:" + job }

// Worker is the heartbeat of a consumer; it expires when the consumer dies.
func (k Keys) Worker(p Partition, name string) string { return k.in(p, "worker:"+name) }

// Trusted holds the run_id of the server process whose state was verified last.
func (k Keys) Trusted(p Partition) string { return k.in(p, "trusted") }

// OrderCounter is the counter of order numbers of a UTC day (yyyymmdd).
func (k Keys) OrderCounter(day string) string { return k.Prefix + ":{seq}:order:" + day }
