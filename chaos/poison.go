package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

// poisonUser is a buyer who never asked for anything.
const poisonUser = "nobody"

// addPoison writes entries into the order streams by hand, one of each sort, and has one order accepted that can't stand.
type addPoison struct {
	stage *stage
	dice  uint64
	hits  int
}

// persisted is an order that Postgres holds: a poison that resembles one must not be older than it.
type persisted struct {
	id, user         string
	number, sequence int64
	quantity         int
	partition        int
	acceptedMS       int64
}

func (f *addPoison) do(ctx context.Context) error {
	p, err := f.stage.lastPersisted(ctx)
	if err != nil {
		return err
	}
	order := func(o, u string, n, k int64) []any {
		return []any{
			"v", "1", "s", bigSale, "k", fmt.Sprint(k), "o", o, "n", fmt.Sprint(n), "u", u, "q", fmt.Sprint(p.quantity),
			"t", fmt.Sprint(p.acceptedMS),
		}
	}
	fresh := func() string { return uuid.Must(uuid.NewV7()).String() }
	second, taken, stranger, noise, future := fresh(), fresh(), fresh(), fresh(), fresh()
	elsewhere := order(stranger, poisonUser, f.stage.poisonNumber(), 1)
	elsewhere[3] = "no-such-sale"
	for _, one := range []struct {
		poison
		fields []any
	}{
		{poison{sort: "not an order", lettered: true, order: noise}, []any{"o", noise, "noise", string([]byte{0xff, 0, byte(f.dice), byte(f.dice >> 8)})}},
		{poison{sort: "unknown version", lettered: true, order: future}, []any{"v", "9", "o", future}},
		{poison{sort: "unknown sale", lettered: true, order: stranger}, elsewhere},
		{poison{sort: "second order of a buyer", lettered: true, order: second}, order(second, p.user, f.stage.poisonNumber(), 1)},
		{poison{sort: "number of another order", lettered: true, order: taken}, order(taken, poisonUser, p.number, 1)},
		{poison{sort: "copy of an order"}, order(p.id, p.user, p.number, p.sequence)},
	} {
		entry, err := f.stage.cast.rdb.XAdd(ctx, &redis.XAddArgs{
			Stream: pipeline.DefaultKeys.Orders(pipeline.Partition(p.partition)), Values: one.fields,
		}).Result()
		if err != nil {
			return err
		}
		one.entry = entry
		f.stage.history.poisoned(one.poison)
		f.hits++
	}
	return f.admit(ctx, p)
}

const admitEvery = 50 * time.Millisecond

// admit has Redis accept an order that can't be persisted, because its number is another's. Other than an entry that was
// added by hand it takes a unit and a slot, which its dead letter must give back.
func (f *addPoison) admit(ctx context.Context, p persisted) error {
	keys, partition := pipeline.DefaultKeys, pipeline.Partition(p.partition)
	order := uuid.Must(uuid.NewV7()).String()
	request := lua.AdmitRequest{OrderID: order, Number: p.number, UserID: poisonUser + "-" + order, Quantity: p.quantity}
	for {
		reply, err := lua.Admit(ctx, f.stage.cast.rdb, lua.AdmitKeys{
			Sale: keys.Sale(partition, bigSale), Buyers: keys.Buyers(partition, bigSale), Orders: keys.Orders(partition),
			Trusted: keys.Trusted(partition),
		}, bigSale, pipeline.DefaultStreamMaxLag, []lua.AdmitRequest{request})
		if err == nil && reply.Outcomes[0].Code == lua.AdmitAccepted {
			f.stage.history.poisoned(poison{sort: "accepted under the number of another order", lettered: true, order: order})
			f.hits++
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the order to be refused was not accepted: %w", errors.Join(err, ctx.Err()))
		}
		sleep(ctx, admitEvery) // Redis is being verified
	}
}

func (f *addPoison) undo(context.Context) (int, error) { return f.hits, nil }

// poisonNumber is an order number that no order has: the real ones count seconds since 2026 in their upper half.
func (s *stage) poisonNumber() int64 { return 1<<62 + s.poisonNumbers.Add(1) }

// lastPersisted waits for an order of the big sale that Postgres has.
func (s *stage) lastPersisted(ctx context.Context) (persisted, error) {
	for {
		p, err := s.queryLastPersisted(ctx)
		if err == nil || ctx.Err() != nil {
			return p, err
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

func (s *stage) queryLastPersisted(ctx context.Context) (persisted, error) {
	rows, err := s.cast.pool.Query(ctx, `
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
