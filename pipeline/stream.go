package pipeline

// DefaultStreamMaxLag is how many accepted orders may wait for the workers on one partition. A million of them take Redis
// some 300 MB, slots included (measured: 0.3 KB each), and one lane of a worker about a minute. Beyond that, the workers or
// Postgres need somebody's help, and Redis' memory is worth more than further accepts.
const DefaultStreamMaxLag = 1_000_000

// HandOverMaxLag is the backlog at which nothing more is handed over: units wait with the people until workers have caught up.
const HandOverMaxLag = DefaultStreamMaxLag

// Group is the consumer group of every order stream.
const Group = "workers"
