package chaos

import "time"

// kind is a kind of fault.
type kind string

// The kinds. Those of the first group may cost time, never an order. Those of the second take data from Redis: what was
// only there must come back from Postgres, from the workers or from the APIs' journals, or become a dead letter. The
// last one takes data from Postgres, which is stored again from Redis.
const (
	killAPI       kind = "kill -9 of an API"
	killAPIs      kind = "kill -9 of all APIs"
	pauseAPI      kind = "SIGSTOP of an API"
	vanish        kind = "machine of an API vanishes"
	killWorker    kind = "kill -9 of a worker"
	killWorkers   kind = "kill -9 of all workers"
	pauseWorker   kind = "SIGSTOP of a worker" // beyond its locks and claim time, often beyond its heartbeat
	killRedis     kind = "kill -9 of Redis"
	stillRedis    kind = "Redis stands still"
	cutRedis      kind = "Redis half-open to all"
	killPostgres  kind = "kill -9 of Postgres"
	stillPostgres kind = "Postgres stands still"
	cutPostgres   kind = "Postgres half-open to all"
	cut           kind = "connection cut"
	slow          kind = "connection slow"
	halfOpen      kind = "connection half-open"
	lostReply     kind = "reply lost"
	forgetScript  kind = "SCRIPT FLUSH"
	killClients   kind = "CLIENT KILL storm"
	endBackends   kind = "backends ended"
	poison        kind = "poison entries"
	redisClock    kind = "Redis' clock wrong"
	postgresClock kind = "Postgres' clock wrong"

	flushAll   kind = "FLUSHALL"
	oldFile    kind = "older AOF restored"
	failover   kind = "failover to a late replica"
	splitBrain kind = "split brain"

	restored kind = "older Postgres restored"

	// of a Postgres whose commits wait for its standby
	promoteStandby kind = "standby promoted"
	killStandby    kind = "kill -9 of the standby"
	stillStandby   kind = "SIGSTOP of the standby"

	// of a Postgres of several nodes, beside those of its coordinator, which are called those of Postgres
	killNode  kind = "kill -9 of a node"
	stillNode kind = "SIGSTOP of a node"

	// of a Redis whose replica takes over
	killMaster   kind = "kill -9 of a master"
	stillMaster  kind = "SIGSTOP of a master"
	switchMaster kind = "planned fail-over"
	moveSlot     kind = "slot moves"
	lateTakeOver kind = "late replica takes over"
	flushMaster  kind = "FLUSHALL of a master"
)

// class is what a plan pairs: kinds that the rest of the system can hardly tell from each other.
type class string

const (
	redisAway     class = "Redis away"
	redisLoses    class = "Redis loses data"
	postgresAway  class = "Postgres away"
	postgresLoses class = "Postgres loses data"
	apiDies       class = "API dies"
	apiStill      class = "API stands still"
	workerDies    class = "worker dies"
	workerStill   class = "worker stands still"
	network       class = "network"
	clocks        class = "clock wrong"
	nuisance      class = "nuisance" // what operators and other clients do
)

var classes = []class{
	redisAway, redisLoses, postgresAway, postgresLoses, apiDies, apiStill, workerDies, workerStill, network, clocks,
	nuisance,
}

// trait is what the plan has to know of a kind.
type trait struct {
	class    class
	min, max time.Duration
	where    targets
	kills    bool       // a process of ours or a server
	loses    bool       // takes data from Redis
	away     bool       // a store answers nobody for as long as the fault lasts, which may be minutes
	brief    bool       // over at once, so that nothing can begin while it is on
	mislays  bool       // takes data from Postgres
	in       []Topology // where it can strike; nil: in all
}

// targets are where a kind can strike.
type targets int

const (
	anAPI targets = iota
	allAPIs
	aWorker
	allWorkers
	aConnection
	redisServer
	postgresServer
	bothServers
	aShard        // of a cluster; while one has a fault, the others have none: two of three masters are its majority
	redisWatch    // a server's clock goes wrong whatever else happens to the server
	postgresWatch //
)

// The times of a worker are shortened for the run, so that a pause beyond them is short too.
const (
	batchDeadline = time.Second
	lockTTL       = 2 * time.Second
	claimMinIdle  = 3 * time.Second
)

var kinds = []kind{
	killAPI, killAPIs, pauseAPI, vanish, killWorker, killWorkers, pauseWorker, killRedis, stillRedis, cutRedis,
	killPostgres, stillPostgres, cutPostgres, cut, slow, halfOpen, lostReply, forgetScript, killClients, endBackends,
	poison, redisClock, postgresClock, flushAll, oldFile, failover, splitBrain, restored,
	promoteStandby, killStandby, stillStandby, killNode, stillNode, killMaster, stillMaster, switchMaster, moveSlot,
	lateTakeOver, flushMaster,
}

const ms = time.Millisecond

// Where kinds can strike.
var (
	alone       = []Topology{Single, ReplicatedPostgres, Citus} // of a Redis without a replica
	paired      = []Topology{ReplicatedPostgres}
	distributed = []Topology{Citus}
	// unpaired Postgres goes by a clock of its own, and can go back.
	unpaired = []Topology{Single, Sentinel, Cluster}
)

var traits = map[kind]trait{
	killAPI:       {class: apiDies, min: 0, max: 1500 * ms, where: anAPI, kills: true},
	killAPIs:      {class: apiDies, min: 0, max: 1500 * ms, where: allAPIs, kills: true},
	vanish:        {class: apiDies, min: 1000 * ms, max: 4000 * ms, where: anAPI, kills: true},
	pauseAPI:      {class: apiStill, min: 500 * ms, max: 6000 * ms, where: anAPI},
	killWorker:    {class: workerDies, min: 0, max: 1500 * ms, where: aWorker, kills: true},
	killWorkers:   {class: workerDies, min: 0, max: 1500 * ms, where: allWorkers, kills: true},
	pauseWorker:   {class: workerStill, min: claimMinIdle + 500*ms, max: 8000 * ms, where: aWorker},
	killRedis:     {class: redisAway, min: 0, max: 1000 * ms, where: redisServer, away: true, kills: true, in: alone},
	stillRedis:    {class: redisAway, min: 500 * ms, max: 4000 * ms, where: redisServer, away: true, in: alone},
	cutRedis:      {class: redisAway, min: 500 * ms, max: 4000 * ms, where: redisServer, away: true, in: alone},
	killPostgres:  {class: postgresAway, min: 0, max: 3000 * ms, where: postgresServer, away: true, kills: true},
	stillPostgres: {class: postgresAway, min: 500 * ms, max: 5000 * ms, where: postgresServer, away: true},
	cutPostgres:   {class: postgresAway, min: 500 * ms, max: 5000 * ms, where: postgresServer, away: true},
	cut:           {class: network, min: 200 * ms, max: 3000 * ms, where: aConnection},
	slow:          {class: network, min: 1000 * ms, max: 5000 * ms, where: aConnection},
	halfOpen:      {class: network, min: 1000 * ms, max: 6000 * ms, where: aConnection},
	lostReply:     {class: network, min: 500 * ms, max: 3000 * ms, where: aConnection},
	forgetScript:  {class: nuisance, min: 200 * ms, max: 2000 * ms, where: redisServer},
	killClients:   {class: nuisance, min: 500 * ms, max: 2000 * ms, where: redisServer},
	endBackends:   {class: nuisance, min: 500 * ms, max: 2000 * ms, where: postgresServer},
	poison:        {class: nuisance, min: 0, max: 0, where: bothServers, brief: true},
	redisClock:    {class: clocks, min: 2000 * ms, max: 10_000 * ms, where: redisWatch, in: alone},
	postgresClock: {class: clocks, min: 2000 * ms, max: 10_000 * ms, where: postgresWatch, in: unpaired},

	flushAll: {class: redisLoses, min: 0, max: 0, where: redisServer, loses: true, in: alone},
	oldFile:  {class: redisLoses, min: 500 * ms, max: 1500 * ms, where: redisServer, loses: true, kills: true, in: alone},
	failover: {class: redisLoses, min: 500 * ms, max: 1500 * ms, where: redisServer, loses: true, kills: true, in: alone},
	splitBrain: {
		class: redisLoses, min: 500 * ms, max: 9000 * ms, where: redisServer, loses: true, kills: true, in: alone,
	},

	promoteStandby: {
		class: postgresAway, min: 0, max: 1000 * ms, where: postgresServer, kills: true, in: paired,
	},
	killStandby: {
		class: postgresAway, min: 0, max: 3000 * ms, where: postgresServer, kills: true, in: paired,
	},
	stillStandby: {class: postgresAway, min: 500 * ms, max: 5000 * ms, where: postgresServer, in: paired},

	killNode: {
		class: postgresAway, min: 0, max: 3000 * ms, where: postgresServer, away: true, kills: true, in: distributed,
	},
	stillNode: {class: postgresAway, min: 500 * ms, max: 5000 * ms, where: postgresServer, away: true, in: distributed},

	killMaster: {
		class: redisAway, min: 0, max: 12_000 * ms, where: aShard, kills: true, in: replicated,
	},
	stillMaster:  {class: redisAway, min: 500 * ms, max: 12_000 * ms, where: aShard, in: replicated},
	switchMaster: {class: redisAway, min: 0, max: 1000 * ms, where: aShard, in: replicated},
	moveSlot:     {class: nuisance, min: 0, max: 1000 * ms, where: aShard, in: []Topology{Cluster}},
	lateTakeOver: {
		class: redisLoses, min: 4500 * ms, max: 6000 * ms, where: aShard, loses: true, kills: true, in: replicated,
	},
	flushMaster: {class: redisLoses, min: 0, max: 0, where: aShard, loses: true, in: replicated},

	restored: {
		class: postgresLoses, min: 500 * ms, max: 1500 * ms, where: postgresServer, mislays: true, kills: true, in: unpaired,
	},
}
