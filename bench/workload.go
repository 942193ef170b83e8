package main

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/internal/config"
	"sluice/internal/loadgen"
	"sluice/internal/process"
	"sluice/lua"
	"sluice/pipeline"
)

// workload is the events that the persist section brings in: the same ones for every candidate and round.
type workload struct {
	testbed *testbed
	reader  redis.UniversalClient // the worker's blocking reads
	all     []pipeline.Event
	now     []pipeline.Event // those of this round
	stop    func() error     // ends the worker of this round
}

func newWorkload(s *testbed) (*workload, error) {
	reader, err := process.OpenRedis(config.Config{RedisURL: s.servers.Redis.URL()})
	if err != nil {
		return nil, err
	}
	h := &workload{testbed: s, reader: reader, all: make([]pipeline.Event, s.opts.Rows)}
	bits := rand.NewChaCha8(seedOf(s.opts.Seed))
	accepted := time.Now().UTC().Truncate(time.Millisecond)
	first := s.newBuyers()
	for i := range h.all {
		id, err := uuid.NewV7FromReader(bits) // rising with time, as the api makes them
		if err != nil {
			return nil, err
		}
		h.all[i] = pipeline.Event{
			Partition: s.sale.Partitions[0], SaleID: saleID, Sequence: int64(i + 1), OrderID: id.String(),
			Number: 1<<60 + int64(i), UserID: loadgen.BuyerID(s.opts.Seed, first+uint64(i)), Quantity: 1,
			AcceptedAt: accepted,
		}
	}
	return h, nil
}

func (h *workload) close() error { return h.reader.Close() }

func seedOf(n uint64) (seed [32]byte) {
	binary.LittleEndian.PutUint64(seed[:], n)
	return seed
}

// size chooses the events of a round: all of them, or fewer in the warm-up.
func (h *workload) size(share float64) {
	h.now = h.all[:max(h.testbed.opts.Batch, int(float64(len(h.all))*share))]
}

// fillStream admits the events, so that they are in the stream as the script writes them.
func (h *workload) fillStream(ctx context.Context) error {
	requests := make([]lua.AdmitRequest, 0, lua.MaxAdmitBatch)
	for i, e := range h.now {
		requests = append(requests,
			lua.AdmitRequest{OrderID: e.OrderID, Number: e.Number, UserID: e.UserID, Quantity: e.Quantity})
		if len(requests) < lua.MaxAdmitBatch && i < len(h.now)-1 {
			continue
		}
		if err := admitAll(ctx, h.testbed, requests); err != nil {
			return err
		}
		requests = requests[:0]
	}
	return h.testbed.checkAccepts(ctx, int64(len(h.now)))
}

// insertBareQuery is the fastest plain way to write the same rows into the same columns and indexes.
const insertBareQuery = `
insert into bare_orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status, pay_by)
select i.sale_id, i.id, i.number, i.user_id, i.quantity, i.partition, i.sequence, i.accepted_at, 'awaiting_payment',
	now() + interval '15 minutes'
from unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::integer[], $6::smallint[], $7::bigint[],
	$8::timestamptz[]) as i (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at)`

func (h *workload) insertBare(ctx context.Context, events []pipeline.Event) error {
	n := len(events)
	sales, ids, users := make([]string, n), make([]string, n), make([]string, n)
	numbers, sequences, times := make([]int64, n), make([]int64, n), make([]time.Time, n)
	quantities, partitions := make([]int32, n), make([]int16, n)
	for i, e := range events {
		sales[i], ids[i], users[i], numbers[i], sequences[i] = e.SaleID, e.OrderID, e.UserID, e.Number, e.Sequence
		quantities[i], partitions[i], times[i] = int32(e.Quantity), int16(e.Partition), e.AcceptedAt
	}
	_, err := h.testbed.pool.Exec(ctx, insertBareQuery, sales, ids, numbers, users, quantities, partitions, sequences,
		times)
	return err
}
