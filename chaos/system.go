package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/db/distribution"
	"sluice/internal/config"
	"sluice/internal/faultnet"
	"sluice/internal/localservers"
	"sluice/internal/programs"
)

const (
	observer    = "observer" // our own connection to the servers: never faulted, but led along when Redis moves
	startLimit  = 2 * time.Minute
	keptLines   = 200 // last warnings of the processes, shown when something is wrong
	queryLimit  = 30 * time.Second
	workerBatch = 200 // orders: small, so that faults meet many batches
)

// system is everything that runs: servers, proxies, processes.
type system struct {
	servers     *localservers.Servers
	processes   []*process
	links       map[string]*link      // by name: api-1>redis, buyers>api-1, …
	rdb         redis.UniversalClient // ours
	fleet       *fleet                // where replicas take over
	pool        *pgxpool.Pool         // ours
	databaseURL string                // ours
	warnings    programs.Warnings
	comeback    comeback
	log         io.Writer // of the programs; nil: nobody reads it
	least       bool      // the programs have users of Redis
	topology    Topology
	durability  string

	running sync.WaitGroup
	stop    context.CancelFunc

	mu       sync.Mutex // protects the rest
	redis    *localservers.Redis
	postgres postgresPair
	failures []error // of processes that could not be started again
}

// hear gets each line of the programs.
func (s *system) hear(line programs.Line) {
	s.warnings.Add(line)
	s.comeback.hear(&line)
	if s.log != nil {
		_, _ = fmt.Fprintln(s.log, line.Time.Format("15:04:05.000"), line.Process, line.Level, line.Text())
	}
}

// openSystem starts the servers. The processes start later: the sales are made before.
func openSystem(ctx context.Context, o Options) (*system, error) {
	s := &system{
		least: o.Least, topology: o.Topology, links: map[string]*link{}, warnings: programs.Warnings{Keep: keptLines},
		durability: o.Durability, log: o.Log, stop: func() {},
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// open makes our own connections as well. The one to Redis goes through a proxy, which a failover leads elsewhere.
func (s *system) open(ctx context.Context) error {
	var err error
	kind := localservers.Kind{Clocks: localservers.CanMoveClocks(), Citus: s.topology == Citus}
	if s.servers, err = localservers.StartKind(ctx, kind); err != nil {
		return err
	}
	s.redis, s.postgres.primary = s.servers.Redis, s.servers.Postgres
	if err := db.Migrate(ctx, s.servers.Postgres.URL()); err != nil {
		return err
	}
	if s.topology == Citus {
		if _, err := distribution.Apply(ctx, s.servers.Postgres.URL()); err != nil {
			return err
		}
	}
	if err := s.openRedis(ctx); err != nil {
		return err
	}
	if s.databaseURL, err = s.listen(observer+">postgres", s.servers.Postgres.URL()); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, s.databaseURL); err != nil {
		return err
	}
	if s.topology == ReplicatedPostgres {
		if err := s.openStandby(ctx); err != nil {
			return err
		}
	}
	if s.least {
		return s.provide(ctx)
	}
	return nil
}

func (s *system) openRedis(ctx context.Context) (err error) {
	if s.topology.isReplicated() {
		if s.fleet, err = openFleet(ctx, s.topology); err == nil {
			s.rdb, err = s.fleet.client()
		}
		return err
	}
	url, err := s.listen(observer+">redis", s.servers.Redis.URL())
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	options.ReadTimeout = queryLimit
	s.rdb = redis.NewClient(options)
	return nil
}

// redisOf is where a process reaches Redis. Servers that replicate announce where they are, so
// nothing can be between.
func (s *system) redisOf(name string, program config.Program) (string, error) {
	if s.topology.isReplicated() {
		return s.fleet.url, nil
	}
	redisURL, err := s.listen(name+">redis", s.servers.Redis.URL())
	if s.least {
		redisURL = strings.Replace(redisURL, "://", "://"+userOf(program)+":"+userOf(program)+"@", 1)
	}
	return redisURL, err
}

// startProcesses returns when each is ready.
func (s *system) startProcesses(ctx context.Context) error {
	for i := range apiCount + workerCount {
		program, n := config.API, i
		if i >= apiCount {
			program, n = config.Worker, i-apiCount
		}
		if err := s.add(processName(string(program), n), program); err != nil {
			return err
		}
	}
	var running context.Context
	running, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if s.least {
		s.running.Go(func() { s.keepProvided(running) })
	}
	for _, p := range s.processes {
		s.running.Go(func() {
			if err := p.keepRunning(running); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.failures = append(s.failures, err)
			}
		})
	}
	for _, p := range s.processes {
		if _, err := p.running(ctx); err != nil {
			return errors.Join(err, errors.New(strings.Join(append(s.crashed(), s.lines()...), "\n")))
		}
	}
	return nil
}

func (s *system) listen(name, serverURL string) (url string, err error) {
	proxy, err := faultnet.Listen(serverURL)
	if err != nil {
		return "", err
	}
	s.links[name] = &link{Proxy: proxy}
	return proxy.URL(), nil
}

// add makes a process with its proxies. It does not run yet.
func (s *system) add(name string, program config.Program) error {
	redisURL, err := s.redisOf(name, program)
	if err != nil {
		return err
	}
	databaseURL, err := s.listen(name+">postgres", s.servers.Postgres.URL())
	if err != nil {
		return err
	}
	environ := append(programs.Environ(),
		"REDIS_URL="+redisURL, "DATABASE_URL="+databaseURL, "DURABILITY="+s.durability,
		"AUTH_MODE=dev", "LOG_FORMAT=json", "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
		fmt.Sprintf("WORKER_BATCH_SIZE=%d", workerBatch),
		fmt.Sprintf("REDIS_FUNCTIONS=%t", s.least),
		// Each machine has a disk of its own: no other process can read its journal while it is away.
		"ACCEPT_JOURNAL="+filepath.Join(s.servers.Dir(), "journal-of-"+name),
		"BATCH_DEADLINE="+batchDeadline.String(), "LOCK_TTL="+lockTTL.String(), "CLAIM_MIN_IDLE="+claimMinIdle.String())
	p := &process{
		name: name, servers: s.servers, ready: make(chan struct{}),
		program: programs.Program{
			Name: name, Args: []string{string(program)}, Environ: environ,
			OnLine: s.hear,
		},
	}
	if program == config.API {
		// the address is known when it is ready
		if _, err := s.listen("buyers>"+name, "http://127.0.0.1:1"); err != nil {
			return err
		}
		p.front = s.links["buyers>"+name].Proxy
	}
	s.processes = append(s.processes, p)
	return nil
}

// fronts are the addresses at which buyers reach the APIs.
func (s *system) fronts() []string {
	var urls []string
	for i := range apiCount {
		urls = append(urls, s.links["buyers>"+processName("api", i)].URL())
	}
	return urls
}

func (s *system) process(name string) *process {
	for _, p := range s.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

// lines are the last warnings of the processes.
func (s *system) lines() []string { return s.warnings.Lines("15:04:05.000 ") }

// crashed lists the processes that ended by themselves, and what could not be started again.
func (s *system) crashed() []string {
	var list []string
	for _, p := range s.processes {
		p.locked(func() { list = append(list, p.crashes...) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.failures {
		list = append(list, err.Error())
	}
	return list
}

// heal ends whatever is still wrong with the network.
func (s *system) heal() {
	for _, link := range s.links {
		link.reset()
	}
}

// stopProcesses ends all processes, in an orderly way, and waits for them.
func (s *system) stopProcesses() {
	s.stop()
	s.running.Wait()
}

// close ends everything. It may be called twice.
func (s *system) close() error {
	s.stopProcesses()
	if s.pool != nil {
		s.pool.Close()
	}
	var errs []error
	if s.rdb != nil {
		if err := s.rdb.Close(); !errors.Is(err, redis.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, link := range s.links {
		errs = append(errs, link.Close())
	}
	if s.fleet != nil {
		errs = append(errs, s.fleet.close())
	}
	if s.servers != nil {
		errs = append(errs, s.servers.Close())
	}
	return errors.Join(errs...)
}
