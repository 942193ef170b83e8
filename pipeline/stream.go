package pipeline

// DefaultStreamMaxLag is how many accepted orders may wait for the workers on one partition. A million of them take
// some 300 MB of Redis' memory, slots included (measured: 0.3 KB each), and about a minute of one lane of a worker.
// Beyond that, the workers or Postgres need an operator's help, and Redis' memory is worth more than further accepts.
const DefaultStreamMaxLag = 1_000_000

// HandOverMaxLag is the backlog at which no more units are handed over to the waitlist: they wait until the workers
// have caught up.
const HandOverMaxLag = DefaultStreamMaxLag

// Group is the consumer group of every order stream.
const Group = "workers"
