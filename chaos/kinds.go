package chaos

import "time"

// kind is a kind of fault.
type kind string

// The kinds. Those of the first group may cost time, never an order. Those of the second take data from Redis: what was
// only there must come back from Postgres, from the workers and from the APIs' memory, or become a dead letter.
const (
	killAPI      kind = "kill -9 of an API"
	killWorker   kind = "kill -9 of a worker"
	killRedis    kind = "kill -9 of Redis"
	killPostgres kind = "kill -9 of Postgres"
	pauseWorker  kind = "SIGSTOP of a worker" // beyond its locks and claim time, often beyond its heartbeat
	cut          kind = "connection cut"
	slow         kind = "connection slow"
	halfOpen     kind = "connection half-open"
	lostReply    kind = "reply lost"
	forgetScript kind = "SCRIPT FLUSH"
	killClients  kind = "CLIENT KILL storm"
	endBackends  kind = "backends ended"
	poison       kind = "poison entries"

	flushAll kind = "FLUSHALL"
	oldFile  kind = "older AOF restored"
	failover kind = "failover to a late replica"
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
	aConnection
	redisServer
	postgresServer
)

// The times of a worker are shortened for the run, so that a pause beyond them is short too.
const (
	batchDeadline = time.Second
	lockTTL       = 2 * time.Second
	claimMinIdle  = 3 * time.Second
)

var kinds = []kind{
	killAPI, killWorker, killRedis, killPostgres, pauseWorker, cut, slow, halfOpen, lostReply, forgetScript, killClients,
	endBackends, poison, flushAll, oldFile, failover,
}

var traits = map[kind]trait{
	killAPI:      {weight: 6, min: 0, max: 1500 * time.Millisecond, where: anAPI, kills: true},
	killWorker:   {weight: 8, min: 0, max: 1500 * time.Millisecond, where: aWorker, kills: true},
	killRedis:    {weight: 5, min: 0, max: time.Second, where: redisServer, kills: true},
	killPostgres: {weight: 5, min: 0, max: 3 * time.Second, where: postgresServer, kills: true},
	pauseWorker:  {weight: 4, min: claimMinIdle + 500*time.Millisecond, max: 8 * time.Second, where: aWorker},
	cut:          {weight: 4, min: 200 * time.Millisecond, max: 3 * time.Second, where: aConnection},
	slow:         {weight: 3, min: time.Second, max: 5 * time.Second, where: aConnection},
	halfOpen:     {weight: 4, min: time.Second, max: 6 * time.Second, where: aConnection},
	lostReply:    {weight: 6, min: 500 * time.Millisecond, max: 3 * time.Second, where: aConnection},
	forgetScript: {weight: 2, min: 200 * time.Millisecond, max: 2 * time.Second, where: redisServer},
	killClients:  {weight: 3, min: 500 * time.Millisecond, max: 2 * time.Second, where: redisServer},
	endBackends:  {weight: 2, min: 500 * time.Millisecond, max: 2 * time.Second, where: postgresServer},
	poison:       {weight: 3, min: 0, max: 0, where: redisServer},

	flushAll: {weight: 1, min: 0, max: 0, where: redisServer, kills: false, loses: true},
	oldFile: {
		weight: 1, min: 500 * time.Millisecond, max: 1500 * time.Millisecond, where: redisServer, kills: true,
		loses: true,
	},
	failover: {
		weight: 1, min: 500 * time.Millisecond, max: 1500 * time.Millisecond, where: redisServer, kills: true,
		loses: true,
	},
}
