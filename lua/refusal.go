package lua

import (
	"context"
	_ "embed" // the script is part of the program

	"github.com/redis/go-redis/v9"
)

//go:embed refusal.lua
var refusalSource string

var refusalScript = newScript("refusal", refusalSource)

// MaxRefusals bounds the sales of one ReadRefusals: each takes the server about two microseconds.
const MaxRefusals = 100

// refusalCode says whether what was read counts.
type refusalCode string

// Every code of ReadRefusals.
const (
	refusalKnown     refusalCode = "known"     // the numbers are those by which an order would be decided now
	refusalUntrusted refusalCode = "untrusted" // the server's state is not verified, or another has taken its place
)

// RefusalKeys are the keys of a partition, and of some of the sales on it; they share a hash slot.
type RefusalKeys struct {
	Trusted    string
	Generation string
	Sales      []string // hashes, 1 to MaxRefusals
	Fence      int64    // as for Admit
}

// Refusals are what decides whether sales refuse every buyer without a slot.
type Refusals struct {
	Known      bool  // false: the server's state is not verified; the rest counts for nothing
	NowMS      int64 // by the server's clock
	Generation int64
	Sales      []SaleLimits // by RefusalKeys.Sales
}

// SaleLimits are the numbers of a sale on a partition by which an order is refused.
type SaleLimits struct {
	State           string // empty: Redis does not have the sale
	OpensMS         int64
	ClosesMS        int64
	MaxQuantity     int
	Stock           int64
	Waiting         int64
	AcceptedCounter int64 // no buyer gets a slot without it, until the next generation
	// Of these and the generation, one grows whenever the stock does; MovedOut, when units go to another partition.
	Version, Released, Tickets, MovedIn, MovedOut int64
}

const (
	refusalHead  = 3
	refusalWidth = 12
)

// ReadRefusals reads the limits of sales on a partition. It changes nothing.
func ReadRefusals(ctx context.Context, rdb redis.Scripter, keys RefusalKeys) (r Refusals, err error) {
	defer named("refusal", &err)
	if err := checkBatch(len(keys.Sales), MaxRefusals); err != nil {
		return Refusals{}, err
	}
	names := append([]string{keys.Trusted, keys.Generation}, keys.Sales...)
	reply, err := refusalScript.Run(ctx, rdb, names, keys.Fence).Result()
	if err != nil {
		return Refusals{}, err
	}
	items, err := replyArray(reply, refusalHead+refusalWidth*len(keys.Sales))
	if err != nil {
		return Refusals{}, err
	}
	code, err := replyCode(items[0], refusalKnown, refusalUntrusted)
	if err != nil || code == refusalUntrusted {
		return Refusals{}, err
	}
	r = Refusals{Known: true, Sales: make([]SaleLimits, len(keys.Sales))}
	if r.NowMS, err = replyInteger(items[1]); err != nil {
		return Refusals{}, err
	}
	if r.Generation, err = replyInteger(items[2]); err != nil {
		return Refusals{}, err
	}
	for i := range r.Sales {
		if err := r.Sales[i].read(items[refusalHead+refusalWidth*i:][:refusalWidth]); err != nil {
			return Refusals{}, err
		}
	}
	return r, nil
}

func (l *SaleLimits) read(items []any) (err error) {
	if l.State, err = replyText(items[0]); err != nil {
		return err
	}
	var most int64
	for i, number := range []*int64{&l.OpensMS, &l.ClosesMS, &most, &l.Stock, &l.Waiting, &l.AcceptedCounter,
		&l.Version, &l.Released, &l.Tickets, &l.MovedIn, &l.MovedOut} {
		if *number, err = replyInteger(items[1+i]); err != nil {
			return err
		}
	}
	l.MaxQuantity = int(most)
	return nil
}
