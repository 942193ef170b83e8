package buyers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// Statuses of orders in Postgres.
const (
	statusConfirmed = "confirmed" // of a sale without a price
	statusPaid      = "paid"
	statusCancelled = "cancelled"
	statusExpired   = "expired"
	statusRejected  = "rejected"
)

// Order is an order as it stands in Postgres.
type Order struct {
	Sale        string
	ID          string
	Number      *int64
	User        string
	Quantity    int
	Status      string
	Reason      string
	PaymentID   string // empty: not paid
	Sequence    int64  // Redis' counter of accepts, after this one
	AcceptedAt  time.Time
	PersistedAt time.Time
}

// paymentRecord is a record of money in Postgres.
type paymentRecord struct {
	WebhookID, OrderID, Outcome, Reason string
	Amount                              int64
}

// letter is a dead letter.
type letter struct{ Entry, Sale, Order, Reason, Error string }

// saleState is a sale as both stores have it.
type saleState struct {
	id    string
	total int64
	stock int64 // in Redis, as the next ones
	// slots are the buyers' slots; nil: neither they nor Postgres' counter sold are to be compared.
	slots   map[string]slot // by user
	missing []string        // partitions of which Redis has nothing
	sold    int64
}

// slot is the place of one buyer in Redis.
type slot struct {
	order    string
	quantity int
}

// Stores are what Postgres and Redis have.
type Stores struct {
	Orders   []Order
	payments []paymentRecord
	letters  []letter
	sales    []saleState
}

// Stock is what Redis has left of a sale.
func (s *Stores) Stock(sale string) (units int) {
	for _, one := range s.sales {
		if one.id == sale {
			units += int(one.stock)
		}
	}
	return units
}

// Reader reads the stores.
type Reader struct {
	Postgres *pgxpool.Pool
	Redis    redis.UniversalClient
	Sales    []string
	Slots    bool // the buyers' slots and the counter of sold units too
}

// Read reads everything about the sales.
func (r Reader) Read(ctx context.Context) (*Stores, error) {
	s := &Stores{}
	var err error
	if s.Orders, err = collect[Order](ctx, r.Postgres, `
		select sale_id, id::text, number, user_id, quantity, status, reason, coalesce(payment_id, ''), sequence,
			accepted_at, persisted_at
		from orders`); err != nil {
		return nil, err
	}
	if s.payments, err = collect[paymentRecord](ctx, r.Postgres, `
		select coalesce(webhook_id, ''), coalesce(order_id::text, ''), outcome, reason, coalesce(amount, 0) from payments`); err != nil {
		return nil, err
	}
	if s.letters, err = collect[letter](ctx, r.Postgres,
		`select entry_id, sale_id, order_id, reason, error from dead_letters`); err != nil {
		return nil, err
	}
	for _, id := range r.Sales {
		sale, err := r.readSale(ctx, id)
		if err != nil {
			return nil, err
		}
		s.sales = append(s.sales, sale)
	}
	return s, nil
}

func collect[T any](ctx context.Context, pool *pgxpool.Pool, query string) ([]T, error) {
	rows, err := pool.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

func (r Reader) readSale(ctx context.Context, id string) (saleState, error) {
	s := saleState{id: id}
	if r.Slots {
		s.slots = map[string]slot{}
	}
	var partitions []int16
	err := r.Postgres.QueryRow(ctx, `select total, sold, partitions from sales where id = $1`, id).Scan(&s.total,
		&s.sold, &partitions)
	if err != nil {
		return s, err
	}
	for _, p := range partitions {
		stock, err := r.Redis.HGet(ctx, fmt.Sprintf("sluice:{p%02d}:sale:%s", p, id), "stock").Int64()
		if err != nil {
			s.missing = append(s.missing, fmt.Sprintf("p%02d: %v", p, err))
			continue
		}
		s.stock += stock
		if !r.Slots {
			continue
		}
		slots, err := r.Redis.HGetAll(ctx, fmt.Sprintf("sluice:{p%02d}:buyers:%s", p, id)).Result()
		if err != nil {
			return s, err
		}
		for user, text := range slots {
			s.slots[user] = readSlot(text)
		}
	}
	return s, nil
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
