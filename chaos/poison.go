package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
	"sluice/lua"
	"sluice/pipeline"
)

// poisonUser is a buyer who never asked for anything.
const poisonUser = "nobody"

// persisted is an order that Postgres has: a poison that resembles one must not be older than it.
type persisted struct {
	id, user         string
	number, sequence int64
	quantity         int
	partition        int
	acceptedMS       int64
}

// addPoison writes entries into the order streams by hand, one of each sort, and has one order accepted that can't
// stand.
func (r *run) addPoison(ctx context.Context, s step) (hits int, err error) {
	p, err := r.lastPersisted(ctx)
	if err != nil {
		return 0, err
	}
	order := func(o, u string, n, k int64) []any {
		return []any{
			"v", "1", "s", bigSale, "k", fmt.Sprint(k), "o", o, "n", fmt.Sprint(n), "u", u, "q", fmt.Sprint(p.quantity),
			"t", fmt.Sprint(p.acceptedMS),
		}
	}
	fresh := func() string { return uuid.Must(uuid.NewV7()).String() }
	second, taken, stranger, noise, future := fresh(), fresh(), fresh(), fresh(), fresh()
	elsewhere := order(stranger, poisonUser, r.poisonNumber(), 1)
	elsewhere[3] = "no-such-sale"
	for _, one := range []struct {
		buyers.Poison
		fields []any
	}{
		{
			buyers.Poison{Sort: "not an order", Lettered: true, Order: noise},
			[]any{"o", noise, "noise", string([]byte{0xff, 0, byte(s.Random), byte(s.Random >> 8)})},
		},
		{buyers.Poison{Sort: "unknown version", Lettered: true, Order: future}, []any{"v", "9", "o", future}},
		{buyers.Poison{Sort: "unknown sale", Lettered: true, Order: stranger}, elsewhere},
		{
			buyers.Poison{Sort: "second order of a buyer", Lettered: true, Order: second},
			order(second, p.user, r.poisonNumber(), 1),
		},
		{
			buyers.Poison{Sort: "number of another order", Lettered: true, Order: taken},
			order(taken, poisonUser, p.number, 1),
		},
		{buyers.Poison{Sort: "copy of an order"}, order(p.id, p.user, p.number, p.sequence)},
	} {
		entry, err := r.system.rdb.XAdd(ctx, &redis.XAddArgs{
			Stream: pipeline.DefaultKeys.Orders(pipeline.Partition(p.partition)), Values: one.fields,
		}).Result()
		if err != nil {
			return hits, err
		}
		one.Entry = entry
		r.history.NotePoison(one.Poison)
		hits++
	}
	if err := r.acceptPoison(ctx, p); err != nil {
		return hits, err
	}
	return hits + 1, nil
}

const acceptEvery = 50 * time.Millisecond

// acceptPoison has Redis accept an order that can't be persisted, because its number is another's. Unlike an entry
// that was added by hand it takes a unit and a slot, which its dead letter must give back.
func (r *run) acceptPoison(ctx context.Context, p persisted) error {
	keys, partition := pipeline.DefaultKeys, pipeline.Partition(p.partition)
	order := uuid.Must(uuid.NewV7()).String()
	request := lua.AdmitRequest{
		OrderID: order, Number: p.number, UserID: poisonUser + "-" + order,
		Quantity: p.quantity,
	}
	for {
		reply, err := lua.Admit(ctx, r.system.rdb, keys.ForSale(partition, bigSale), bigSale,
			pipeline.DefaultStreamMaxLag, []lua.AdmitRequest{request})
		if err == nil && reply.Outcomes[0].Code == lua.AdmitAccepted {
			r.history.NotePoison(buyers.Poison{
				Sort: "accepted under the number of another order", Lettered: true,
				Order: order,
			})
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the order to be refused was not accepted: %w", errors.Join(err, ctx.Err()))
		}
		buyers.Sleep(ctx, acceptEvery) // Redis is being verified
	}
}

// poisonNumber is an order number that no order has: the real ones count seconds since 2026 in their upper half.
func (r *run) poisonNumber() int64 { return 1<<62 + r.poisonNumbers.Add(1) }

// lastPersisted waits for an order of the big sale that Postgres has.
func (r *run) lastPersisted(ctx context.Context) (persisted, error) {
	for {
		p, err := r.queryLastPersisted(ctx)
		if err == nil || ctx.Err() != nil {
			return p, err
		}
		buyers.Sleep(ctx, 50*time.Millisecond)
	}
}

func (r *run) queryLastPersisted(ctx context.Context) (persisted, error) {
	rows, err := r.system.pool.Query(ctx, `
		select id::text, user_id, number, sequence, quantity, partition, (extract(epoch from accepted_at) * 1000)::bigint
		from orders where sale_id = $1 and status = 'confirmed' order by id desc limit 1`, bigSale)
	if err != nil {
		return persisted{}, err
	}
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (p persisted, err error) {
		err = row.Scan(&p.id, &p.user, &p.number, &p.sequence, &p.quantity, &p.partition, &p.acceptedMS)
		return p, err
	})
}
