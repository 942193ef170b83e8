package chaos

import "time"

// Kind is a kind of fault.
type Kind string

// The kinds. Those of the first group may cost time, never an order. Those of the second take data from Redis: what was
// only there must come back from Postgres, from the workers' hands and from the APIs' memory, or be told in a dead letter.
const (
	KillAPI      Kind = "kill -9 of an API"
	KillWorker   Kind = "kill -9 of a worker"
	KillRedis    Kind = "kill -9 of Redis"
	KillPostgres Kind = "kill -9 of Postgres"
	PauseWorker  Kind = "SIGSTOP of a worker" // beyond its locks and claim time, often beyond its heartbeat
	Cut          Kind = "connection cut"
	Slow         Kind = "connection slow"
	HalfOpen     Kind = "connection half-open"
	LostReply    Kind = "reply lost"
	ForgetScript Kind = "SCRIPT FLUSH"
	KillClients  Kind = "CLIENT KILL storm"
	EndBackends  Kind = "backends ended"
	Poison       Kind = "poison entries"

	FlushAll Kind = "FLUSHALL"
	OldFile  Kind = "older AOF restored"
	Failover Kind = "failover to a late replica"
)

// trait is what the plan has to know of a kind.
type trait struct {
	weight   int // how often, once each kind had its turn
	min, max time.Duration
	where    targets
	kills    bool // a process of ours or a server
	loses    bool // takes data from Redis
}

// targets are where a kind can strike.
type targets int

const (
	anAPI targets = iota
	aWorker
	aLink
	redisServer
	postgresServer
)

// The times of a worker are shortened for the run, so that a pause beyond them is short too.
const (
	batchDeadline = time.Second
	lockTTL       = 2 * time.Second
	claimMinIdle  = 3 * time.Second
)

var kinds = []Kind{
	KillAPI, KillWorker, KillRedis, KillPostgres, PauseWorker, Cut, Slow, HalfOpen, LostReply, ForgetScript, KillClients,
	EndBackends, Poison, FlushAll, OldFile, Failover,
}

var traits = map[Kind]trait{
	KillAPI:      {weight: 6, min: 0, max: 1500 * time.Millisecond, where: anAPI, kills: true},
	KillWorker:   {weight: 8, min: 0, max: 1500 * time.Millisecond, where: aWorker, kills: true},
	KillRedis:    {weight: 5, min: 0, max: time.Second, where: redisServer, kills: true},
	KillPostgres: {weight: 5, min: 0, max: 3 * time.Second, where: postgresServer, kills: true},
	PauseWorker:  {weight: 4, min: claimMinIdle + 500*time.Millisecond, max: 8 * time.Second, where: aWorker},
	Cut:          {weight: 4, min: 200 * time.Millisecond, max: 3 * time.Second, where: aLink},
	Slow:         {weight: 3, min: time.Second, max: 5 * time.Second, where: aLink},
	HalfOpen:     {weight: 4, min: time.Second, max: 6 * time.Second, where: aLink},
	LostReply:    {weight: 6, min: 500 * time.Millisecond, max: 3 * time.Second, where: aLink},
	ForgetScript: {weight: 2, min: 200 * time.Millisecond, max: 2 * time.Second, where: redisServer},
	KillClients:  {weight: 3, min: 500 * time.Millisecond, max: 2 * time.Second, where: redisServer},
	EndBackends:  {weight: 2, min: 500 * time.Millisecond, max: 2 * time.Second, where: postgresServer},
	Poison:       {weight: 3, min: 0, max: 0, where: redisServer},

	FlushAll: {weight: 1, min: 0, max: 0, where: redisServer, kills: false, loses: true},
	OldFile:  {weight: 1, min: 500 * time.Millisecond, max: 1500 * time.Millisecond, where: redisServer, kills: true, loses: true},
	Failover: {weight: 1, min: 500 * time.Millisecond, max: 1500 * time.Millisecond, where: redisServer, kills: true, loses: true},
}
