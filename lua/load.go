package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed load.lua
var loadSource string

var loadScript = newScript("load", groupSource+loadSource)

// SaleFields is the definition of a sale on one partition, as Load and Adjust write it.
type SaleFields struct {
	Stock       int64 // units left to sell; Adjust ignores it
	Total       int64 // units, sold ones included; 0 where a partition's share is nothing
	OpensMS     int64 // Unix time in ms; the first instant at which orders are accepted
	ClosesMS    int64 // Unix time in ms; the first instant at which they no longer are
	MaxQuantity int   // units in one order, at least 1
	State       string
	Version     int64  // counts the changes of the definition, from 1
	Waitlist    int64  // the most buyers that may wait; 0: the sale has no waitlist
	Group       string // of sales that have a limit together; empty: none. Adjust ignores it, and the next
	GroupLimit  int    // units that a buyer may have in all sales of the group
}

// maxExact is the largest integer that a Lua number holds exactly.
const maxExact = 1 << 53

func (f *SaleFields) check() error {
	switch {
	case f.Total < 0 || f.Total > maxExact:
		return fmt.Errorf("total %d: use 0 to %d", f.Total, int64(maxExact))
	case f.OpensMS < 0 || f.ClosesMS <= f.OpensMS || f.ClosesMS > maxExact:
		return fmt.Errorf("window %d to %d ms: it must begin at 0 or later and end after it begins", f.OpensMS, f.ClosesMS)
	case f.MaxQuantity < 1:
		return fmt.Errorf("max quantity %d: use at least 1", f.MaxQuantity)
	case f.Waitlist < 0 || f.Waitlist > maxExact:
		return fmt.Errorf("waitlist %d: use 0 to %d", f.Waitlist, int64(maxExact))
	case f.Version < 1 || f.Version > maxExact:
		return fmt.Errorf("version %d: use 1 to %d", f.Version, int64(maxExact))
	}
	if f.Group != "" {
		if err := checkWord("group", f.Group); err != nil {
			return err
		}
		if f.GroupLimit < 1 {
			return fmt.Errorf("group limit %d: use at least 1", f.GroupLimit)
		}
	}
	switch f.State {
	case "active", "paused", "closed":
		return nil
	default:
		return fmt.Errorf("state %q: use active, paused or closed", f.State)
	}
}

// LoadCode is the outcome of Load.
type LoadCode string

// Every code of Load.
const (
	LoadLoaded  LoadCode = "loaded"  // the sale is in Redis now
	LoadPresent LoadCode = "present" // it was there; nothing changed
	// LoadUntrusted: the state of the server process is not verified, so it may have lost the sale; nothing changed.
	LoadUntrusted LoadCode = "untrusted"
)

// Load puts a sale into Redis if it is absent; a sale that is there is never touched. After an error, calling again is
// safe: the code may then be LoadPresent for what the first call loaded.
func Load(
	ctx context.Context, rdb redis.Scripter, saleKey, trustedKey string, f SaleFields,
) (code LoadCode, err error) {
	defer named("load", &err)
	if err := f.check(); err != nil {
		return "", err
	}
	if f.Stock < 0 || f.Stock > f.Total {
		return "", fmt.Errorf("stock %d: use 0 to the total, %d", f.Stock, f.Total)
	}
	reply, err := loadScript.Run(ctx, rdb, []string{saleKey, trustedKey},
		f.Stock, f.Total, f.OpensMS, f.ClosesMS, f.MaxQuantity, f.State, f.Version, f.Waitlist, f.Group,
		f.GroupLimit).Result()
	if err != nil {
		return "", err
	}
	return replyCode(reply, LoadLoaded, LoadPresent, LoadUntrusted)
}
