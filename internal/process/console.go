package process

import (
	"context"
	"strconv"

	"sluice/console"
	"sluice/internal/config"
	"sluice/pipeline/overview"
)

// newConsole makes the pages of operators, over the same parts as the admin API.
func (a *api) newConsole(operators console.Operators) *console.Console {
	parts := a.parts
	return console.New(console.Deps{
		Operators: operators,
		Secret:    a.streamSecret,
		Store:     parts.Postgres,
		Overview:  a.overview,
		Publisher: parts.Publisher(),
		Auditor:   parts.Auditor(),
		Replayer:  parts.Replayer(),
		Requests:  parts.Requests(),
		Settings:  shownSettings(a.cfg),
		Version:   a.version,
		Log:       parts.Log,
	})
}

// newOverview is what operators see at a glance, on the pages and in the metrics.
func (a *api) newOverview() *overview.Reader {
	parts := a.parts
	return overview.NewReader(overview.Config{
		Redis: parts.Redis, Keys: parts.Keys, Partitions: parts.Partitions, Store: parts.Postgres.Overview(),
		Sales: a.sales, Durability: a.cfg.Durability,
	})
}

// watchBacklog measures what waits, also where no worker is alive to do so, until the context ends.
func (a *api) watchBacklog(ctx context.Context, m *overview.Metrics) {
	m.SetLimit(a.cfg.StreamMaxLag)
	m.Alive = a.parts.Metrics.Worker.SetAlive
	a.overview.Watch(ctx, m)
}

// shownSettings are those by which an operator recognizes what an api does. None is a secret, or has one in it.
func shownSettings(cfg config.Config) []console.Setting {
	return []console.Setting{
		{Name: "PARTITIONS", Value: strconv.Itoa(cfg.Partitions), Help: "Streams over which sales are spread; fixed at the first start."},
		{Name: "DURABILITY", Value: string(cfg.Durability), Help: "What a receipt promises at least."},
		{
			Name: "DURABILITY_STRICT", Value: strconv.FormatBool(cfg.Strict),
			Help: "Whether an order is refused where that can't be confirmed.",
		},
		{
			Name: "STREAM_MAX_LAG", Value: strconv.Itoa(cfg.StreamMaxLag),
			Help: "Orders that may wait on one partition before buyers are asked to come back later.",
		},
		{Name: "AUTH_MODE", Value: cfg.AuthMode, Help: "How buyers are identified."},
		{Name: "HTTP_ADDR", Value: cfg.HTTPAddr, Help: "Where buyers are served."},
		{Name: "ACCEPT_JOURNAL", Value: cfg.AcceptJournal, Help: "Where accepts are kept until Postgres has them."},
		{Name: "SHUTDOWN_TIMEOUT", Value: cfg.ShutdownTimeout.String(), Help: "How long a stop waits for what is under way."},
	}
}
