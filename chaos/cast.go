package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/internal/programs"
	"sluice/db"
	"sluice/internal/config"
	"sluice/internal/faultnet"
	"sluice/internal/localservers"
)

const (
	observer    = "observer" // our own way to the servers: never faulted, but led along when Redis moves
	startLimit  = 2 * time.Minute
	stopLimit   = time.Minute
	keptLines   = 200 // last warnings of the cast, shown when something is wrong
	queryLimit  = 30 * time.Second
	workerBatch = 200 // orders: small, so that faults meet many batches
)

// cast is everything that runs: servers, proxies, processes.
type cast struct {
	servers *localservers.Servers
	actors  []*actor
	links   map[string]*faultnet.Proxy // by name: api-1>redis, buyers>api-1, …
	rdb     *redis.Client              // ours
	pool    *pgxpool.Pool              // ours

	playing sync.WaitGroup
	stop    context.CancelFunc

	mu       sync.Mutex // protects the rest
	redis    *localservers.Redis
	failures []error // of actors that could not go on
	lines    []string
	warnings map[string]int // by message
}

// openCast starts the servers. The processes start with play: the sales are made before.
func openCast(ctx context.Context) (*cast, error) {
	c := &cast{links: map[string]*faultnet.Proxy{}, warnings: map[string]int{}, stop: func() {}}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cast) open(ctx context.Context) error {
	var err error
	if c.servers, err = localservers.Start(ctx); err != nil {
		return err
	}
	c.redis = c.servers.Redis
	if err := db.Migrate(ctx, c.servers.Postgres.URL()); err != nil {
		return err
	}
	if err := c.openOwn(ctx); err != nil {
		return err
	}
	return nil
}

// play starts the processes and returns when each is ready.
func (c *cast) play(ctx context.Context) error {
	for i := range apiCount {
		if err := c.add(member("api", i), "api"); err != nil {
			return err
		}
	}
	for i := range workerCount {
		if err := c.add(member("worker", i), "worker"); err != nil {
			return err
		}
	}
	var playing context.Context
	playing, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, a := range c.actors {
		c.playing.Go(func() { c.failed(a.play(playing)) })
	}
	for _, a := range c.actors {
		if _, err := a.running(ctx); err != nil {
			return errors.Join(err, c.complaint())
		}
	}
	return nil
}

// openOwn makes our own connections. The one to Redis goes through a proxy as well, which a failover leads elsewhere.
func (c *cast) openOwn(ctx context.Context) error {
	url, err := c.listen(observer+">redis", c.servers.Redis.URL())
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	options.ReadTimeout = queryLimit
	c.rdb = redis.NewClient(options)
	c.pool, err = pgxpool.New(ctx, c.servers.Postgres.URL())
	return err
}

func (c *cast) listen(name, serverURL string) (url string, err error) {
	proxy, err := faultnet.Listen(serverURL)
	if err != nil {
		return "", err
	}
	c.links[name] = proxy
	return proxy.URL(), nil
}

// add makes an actor with its proxies. It does not play yet.
func (c *cast) add(name, command string) error {
	redisURL, err := c.listen(name+">redis", c.servers.Redis.URL())
	if err != nil {
		return err
	}
	databaseURL, err := c.listen(name+">postgres", c.servers.Postgres.URL())
	if err != nil {
		return err
	}
	a := &actor{
		name: name, command: command, servers: c.servers, hear: c.hear, ready: make(chan struct{}),
		environ: append(inherited(),
			"REDIS_URL="+redisURL, "DATABASE_URL="+databaseURL, "DURABILITY=fsync", "AUTH_MODE=dev", "LOG_FORMAT=json",
			"HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", fmt.Sprintf("WORKER_BATCH_SIZE=%d", workerBatch),
			"BATCH_DEADLINE="+batchDeadline.String(), "LOCK_TTL="+lockTTL.String(), "CLAIM_MIN_IDLE="+claimMinIdle.String()),
	}
	if command == string(config.API) {
		if _, err := c.listen("buyers>"+name, "http://127.0.0.1:1"); err != nil { // the API tells its address when it is ready
			return err
		}
		a.front = c.links["buyers>"+name]
	}
	c.actors = append(c.actors, a)
	return nil
}

// inherited is what the processes see of our environment: what any process needs, and no settings of another installation.
func inherited() []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LANG", "GOMAXPROCS", "GODEBUG", "GORACE", "GOCOVERDIR"}
	return slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return !slices.Contains(keep, name)
	})
}

// fronts are the addresses at which buyers reach the APIs.
func (c *cast) fronts() []string {
	var urls []string
	for _, a := range c.actors {
		if a.front != nil {
			urls = append(urls, a.front.URL())
		}
	}
	return urls
}

func (c *cast) actor(name string) *actor {
	for _, a := range c.actors {
		if a.name == name {
			return a
		}
	}
	return nil
}

// hear keeps what the processes complain about.
func (c *cast) hear(line programs.Line) {
	if !line.Serious() || strings.HasPrefix(line.Message, "AUTH_MODE=dev") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings[line.Process[:min(3, len(line.Process))]+"…: "+line.Message]++
	c.lines = append(c.lines, line.Time.Format("15:04:05.000 ")+line.Process+": "+line.Text())
	c.lines = c.lines[max(0, len(c.lines)-keptLines):]
}

func (c *cast) failed(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
}

// complaint is what the processes said last.
func (c *cast) complaint() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) == 0 {
		return errors.Join(c.failures...)
	}
	return errors.Join(append(c.failures, errors.New(strings.Join(c.lines, "\n")))...)
}

// crashed lists the processes that ended by themselves, and what could not be started again.
func (c *cast) crashed() []string {
	var list []string
	for _, a := range c.actors {
		a.mu.Lock()
		list = append(list, a.crashes...)
		a.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.failures {
		list = append(list, err.Error())
	}
	return list
}

// stopActors ends all processes, in an orderly way, and waits for them.
func (c *cast) stopActors() {
	c.stop()
	c.playing.Wait()
}

// close ends everything. It may be called twice.
func (c *cast) close() error {
	c.stopActors()
	if c.pool != nil {
		c.pool.Close()
	}
	var errs []error
	if c.rdb != nil {
		if err := c.rdb.Close(); !errors.Is(err, redis.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, link := range c.links {
		errs = append(errs, link.Close())
	}
	if c.servers != nil {
		errs = append(errs, c.servers.Close())
	}
	return errors.Join(errs...)
}
