package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// row is an order as it stands in Postgres.
type row struct {
	Sale        string
	ID          uuid.UUID
	Number      *int64
	User        string
	Quantity    int
	Status      string
	Reason      string
	AcceptedAt  time.Time
	PersistedAt time.Time
}

// live reports whether the order holds its units. The run ends before anything could be paid or expire.
func (r *row) live() bool { return r.Status == "confirmed" }

// letter is a dead letter.
type letter struct {
	Entry, Sale, Order, Reason, Error string
}

// shelf is a sale as both stores have it.
type shelf struct {
	id          string
	total, sold int64
	stock       int64           // in Redis
	slots       map[string]slot // user → slot
	missing     []string        // partitions of which Redis holds nothing
}

// slot is the place of one buyer in Redis.
type slot struct {
	order    string
	quantity int
}

// books are what both stores hold, read with queries of our own: if the pipeline were wrong about what is there, this would
// not be.
type books struct {
	rows     []row
	letters  []letter
	shelves  []shelf
	releases int64 // in the outbox, applied or not
}

func (s *stage) readBooks(ctx context.Context) (*books, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	b := &books{}
	rows, err := s.cast.pool.Query(ctx, `
		select sale_id, id, number, user_id, quantity, status, reason, accepted_at, persisted_at from orders`)
	if err != nil {
		return nil, err
	}
	if b.rows, err = pgx.CollectRows(rows, pgx.RowToStructByPos[row]); err != nil {
		return nil, err
	}
	if rows, err = s.cast.pool.Query(ctx, `select entry_id, sale_id, order_id, reason, error from dead_letters`); err != nil {
		return nil, err
	}
	if b.letters, err = pgx.CollectRows(rows, pgx.RowToStructByPos[letter]); err != nil {
		return nil, err
	}
	if err := s.cast.pool.QueryRow(ctx, `select count(*) from releases`).Scan(&b.releases); err != nil {
		return nil, err
	}
	for _, sale := range s.sales {
		one, err := s.readShelf(ctx, sale)
		if err != nil {
			return nil, err
		}
		b.shelves = append(b.shelves, one)
	}
	return b, nil
}

func (s *stage) readShelf(ctx context.Context, sale *pipeline.Sale) (shelf, error) {
	b := shelf{id: sale.ID, slots: map[string]slot{}}
	var places []int16
	err := s.cast.pool.QueryRow(ctx, `select total, sold, partitions from sales where id = $1`, sale.ID).Scan(&b.total, &b.sold, &places)
	if err != nil {
		return b, err
	}
	for _, p := range places {
		stock, err := s.cast.rdb.HGet(ctx, fmt.Sprintf("sluice:{p%02d}:sale:%s", p, sale.ID), "stock").Int64()
		if err != nil {
			b.missing = append(b.missing, fmt.Sprintf("p%02d: %v", p, err))
			continue
		}
		b.stock += stock
		slots, err := s.cast.rdb.HGetAll(ctx, fmt.Sprintf("sluice:{p%02d}:buyers:%s", p, sale.ID)).Result()
		if err != nil {
			return b, err
		}
		for user, text := range slots {
			b.slots[user] = readSlot(text)
		}
	}
	return b, nil
}

// readSlot takes what it needs; a slot that can't be read names no order, which the proof then finds.
func readSlot(text string) slot {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return slot{order: text}
	}
	quantity, _ := strconv.Atoi(fields[1])
	return slot{order: fields[0], quantity: quantity}
}
