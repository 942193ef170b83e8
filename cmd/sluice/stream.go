package main

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/internal/table"
	"sluice/pipeline/retry"
)

type streamCmd struct{}

// streamView is one partition's order stream.
type streamView struct {
	Partition string      `json:"partition"`
	Length    int64       `json:"length"` // events; each is deleted once it is settled
	Groups    []groupView `json:"groups"`
}

// groupView is a consumer group of the stream. Ours is named workers; another one is foreign, and worth showing.
type groupView struct {
	Name          string `json:"name"`
	Lag           *int64 `json:"lag"`     // events not yet delivered to a worker; null when Redis does not know
	Pending       int64  `json:"pending"` // delivered and not acknowledged
	Consumers     int64  `json:"consumers"`
	LastDelivered string `json:"last_delivered"`
}

// Run lists the streams.
func (c *streamCmd) Run(a *app) error {
	return a.withRedis(func(s *stores) error {
		views, err := s.streams(a.ctx)
		if err != nil {
			return err
		}
		return printList(a, views, streamTable(views), "No partitions.")
	})
}

func streamTable(views []streamView) *table.Table {
	t := table.New("PARTITION", ">LENGTH", "GROUP", ">LAG", ">PENDING", ">CONSUMERS", "LAST DELIVERED")
	var length, pending int64
	for _, v := range views {
		length += v.Length
		if len(v.Groups) == 0 {
			t.Row(v.Partition, v.Length, "none yet", "", "", "", "")
		}
		for _, g := range v.Groups {
			pending += g.Pending
			t.Row(v.Partition, v.Length, g.Name, orUnknown(g.Lag), g.Pending, g.Consumers, g.LastDelivered)
		}
	}
	t.Row("all", length, "", "", pending, "", "")
	return t
}

// streams asks for everything in two round trips.
func (s *stores) streams(ctx context.Context) ([]streamView, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	pipe := s.redis.Pipeline()
	lengths := make([]*redis.IntCmd, s.cfg.Partitions)
	groups := make([]*redis.XInfoGroupsCmd, s.cfg.Partitions)
	for i, p := range s.partitions() {
		lengths[i] = pipe.XLen(ctx, s.keys.Orders(p))
		groups[i] = pipe.XInfoGroups(ctx, s.keys.Orders(p))
	}
	if _, err := retry.Exec(ctx, pipe); err != nil {
		return nil, unavailable(err, "Redis did not return the streams")
	}
	views := make([]streamView, s.cfg.Partitions)
	for i, p := range s.partitions() {
		views[i] = streamView{Partition: p.String(), Groups: []groupView{}}
		if err := lengths[i].Err(); err != nil {
			return nil, unavailable(err, "Redis did not return the length of a stream")
		}
		views[i].Length = lengths[i].Val()
		if err := groups[i].Err(); err != nil && !noStream(err) {
			return nil, unavailable(err, "Redis did not return the groups of a stream")
		}
		for _, g := range groups[i].Val() {
			views[i].Groups = append(views[i].Groups, viewGroup(g))
		}
	}
	return views, nil
}

func viewGroup(g redis.XInfoGroup) groupView {
	v := groupView{Name: g.Name, Pending: g.Pending, Consumers: g.Consumers, LastDelivered: g.LastDeliveredID}
	if g.Lag >= 0 { // Redis loses count when an event is deleted that was never delivered
		v.Lag = &g.Lag
	}
	return v
}

// noStream reports whether an error says that a stream does not exist: no order was ever accepted on that partition,
// and no worker has read from it.
func noStream(err error) bool { return strings.Contains(err.Error(), "no such key") }

// noGroup reports whether an error says that a stream has no group of ours, or does not exist.
func noGroup(err error) bool { return redis.HasErrorPrefix(err, "NOGROUP") || noStream(err) }
