package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"sluice/db"
	"sluice/internal/process"
	"sluice/internal/programs"
	"sluice/pipeline"
	"sluice/pipeline/operator"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

// Where the dev API listens unless set otherwise or in use: the addresses that the documentation shows.
const (
	devHTTPAddr  = "127.0.0.1:8080"
	devAdminAddr = "127.0.0.1:8081"
)

// devSale is the example that --sale makes.
const (
	devSale       = "drop-1"
	devSaleStock  = 1000
	devSaleWindow = 24 * time.Hour
)

type devCmd struct {
	Workers  int    `default:"2" placeholder:"N" help:"Workers to run, 1 to 16; default 2."`
	Sale     bool   `help:"Create an example sale that is open."`
	HTTPAddr string `name:"http-addr" placeholder:"HOST:PORT" help:"Where buyers' requests are served (HTTP_ADDR); default 127.0.0.1:8080, or any free port if that is taken."`
}

// Run runs everything until it is interrupted. It restarts nothing: it only reports a process that ends.
func (c *devCmd) Run(a *app) (err error) {
	if c.Workers < 1 || c.Workers > programs.MaxWorkers {
		return usagef("--workers %d: use 1 to %d", c.Workers, programs.MaxWorkers)
	}
	if err := a.settings.refuseServers("dev"); err != nil {
		return err
	}
	httpAddr := cmp.Or(c.HTTPAddr, os.Getenv("HTTP_ADDR"), freeOr(devHTTPAddr))
	if _, _, err := net.SplitHostPort(httpAddr); err != nil {
		return usagef("--http-addr %q is not host:port", httpAddr)
	}
	adminAddr := cmp.Or(os.Getenv("ADMIN_ADDR"), freeOr(devAdminAddr))
	log := newDevLog(a.out)
	start := func(httpAddr, adminAddr string) (*programs.Stack, error) {
		return programs.Start(a.ctx, programs.Options{
			Workers: c.Workers, HTTPAddr: httpAddr, AdminAddr: adminAddr, Environ: a.settings.environ(os.Environ()),
			OnLine: log.hear,
		}, func(step string) { log.say(devSteps[step]) })
	}
	crewed, err := start(httpAddr, adminAddr)
	if errors.Is(err, programs.ErrAddressInUse) && (httpAddr == devHTTPAddr || adminAddr == devAdminAddr) {
		log.say("another process has taken the address meanwhile; starting again with free ones")
		crewed, err = start(otherThan(devHTTPAddr, httpAddr), otherThan(devAdminAddr, adminAddr))
	}
	if err != nil {
		return interruptedOr(a.ctx, fmt.Errorf("dev could not start: %w", err))
	}
	defer func() {
		log.say("stopping: the API first, then the workers, then the servers")
		err = errors.Join(err, crewed.Stop(context.WithoutCancel(a.ctx)))
		log.say("stopped; nothing is left behind")
	}()
	token, err := ready(a.ctx, crewed, c.Sale)
	if err != nil {
		return err
	}
	if c.Sale {
		log.say("made the example sale " + devSale)
	}
	log.print(devBanner(crewed, c.Sale, token))
	return awaitEnd(a.ctx, crewed, log)
}

var devSteps = map[string]string{
	"servers":  "starting a private Redis (every write is fsynced) and a private Postgres",
	"schema":   "bringing the database to the schema of this build",
	"programs": "starting the API and the workers",
}

// freeOr returns an address if it is free, or else one with any free port. Another process may still take it first.
func freeOr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close() // it was only tried
	return addr
}

// otherThan is an address, or one with any free port in place of the one that was taken.
func otherThan(taken, addr string) string {
	if addr == taken {
		return "127.0.0.1:0"
	}
	return addr
}

// interruptedOr returns the interruption where that is the cause of a failed start, else the failure.
func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// awaitEnd returns at an interruption, or when every process has ended.
func awaitEnd(ctx context.Context, c *programs.Stack, log *devLog) error {
	gone := make(chan *programs.Process)
	members := append([]*programs.Process{c.API}, c.Workers...)
	for _, m := range members {
		go func() { // ends with the member, which ends with the crew
			<-m.Exited()
			select {
			case gone <- m:
			case <-ctx.Done():
			}
		}()
	}
	for range members {
		select {
		case <-ctx.Done():
			return nil
		case m := <-gone:
			log.say(m.Name + " has ended; it is not restarted, the others go on")
		}
	}
	return errors.New("dev has nothing left to run: the API and every worker have ended; their last lines above say why")
}

// ready returns once orders can be placed: a new Redis is verified first. It makes a token for the console, and the
// example sale, if that is wanted.
func ready(ctx context.Context, c *programs.Stack, sale bool) (token string, err error) {
	store, err := db.Open(ctx, c.Config.DatabaseURL, db.Options{ApplicationName: "sluice-dev", MaxConns: 1})
	if err != nil {
		return "", err
	}
	defer store.Close()
	if token, err = devToken(ctx, store); err != nil {
		return "", err
	}
	rdb, err := process.OpenRedis(c.Config)
	if err != nil {
		return "", err
	}
	defer func() { _ = rdb.Close() }() // nothing is lost
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return "", unavailable(err, "Redis did not return the time")
	}
	quiet := slog.New(slog.DiscardHandler)
	if err := recovery.EnsureVerified(ctx, rdb, pipeline.DefaultKeys, store, c.Config.Partitions, quiet); err != nil {
		return "", err
	}
	if !sale {
		return token, nil
	}
	publisher := sales.NewPublisher(rdb, pipeline.DefaultKeys, store, c.Config.Partitions, quiet)
	return token, publisher.Create(ctx, &pipeline.Sale{
		ID: devSale, Title: "Example", Total: devSaleStock, MaxQuantity: 2, OpensAt: now, ClosesAt: now.Add(devSaleWindow),
		PaymentWindow: 15 * time.Minute,
	})
}

// devToken makes a token that may do everything, and ends with the servers.
func devToken(ctx context.Context, store *db.Store) (string, error) {
	token, text, err := operator.New("dev", operator.Admin, time.Now().Add(devSaleWindow), actor())
	if err != nil {
		return "", err
	}
	_, err = store.OperatorTokens().Add(ctx, token)
	return text, err
}
