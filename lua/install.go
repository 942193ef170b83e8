package lua

import (
	"context"
	_ "embed" // the script is part of the program
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed install.lua
var installSource string

var installScript = newScript("install", groupSource+installSource)

// InstallKeys are the keys of one sale on one partition; they share a hash slot.
type InstallKeys struct {
	Trusted string // names the verification that has the partition
	Sale    string // hash of the sale
	Buyers  string // hash from user id to slot
	Staged  string // hash from user id to slot, which becomes Buyers

	Waitlist, Waiting             string // as in SaleKeys
	StagedWaitlist, StagedWaiting string // what becomes of them
	Ended, StagedEnded            string // as in SaleKeys, and what becomes of it
}

// Counters of a sale, as a rebuild finds them.
type Counters struct {
	Accepted int64 // accepts so far
	Released int64 // releases so far
	Tickets  int64 // joins and leaves of the waitlist so far

	MovedIn, MovedOut int64 // units that came from, and went to, other partitions
	MovesDone         int64 // every move of the sale up to this number has ended
	MovesSettled      int64 // rebuilds of this partition that decided what becomes of moves
	// MovesIn and MovesOut are the moves above MovesDone of which the units are for this partition, or left it.
	MovesIn, MovesOut []Move
}

func (c *Counters) moves() string {
	var words []string
	for _, m := range c.MovesIn {
		words = append(words, fmt.Sprintf("in:%d %d", m.Number, m.Units))
	}
	for _, m := range c.MovesOut {
		words = append(words, fmt.Sprintf("out:%d %d", m.Number, m.Units))
	}
	return strings.Join(words, " ")
}

// Staged is how much was staged.
type Staged struct {
	Slots   int // buyers
	Entries int // waitlist entries
	Enders  int // buyers with ended orders
}

// InstallState is what Install puts into Redis.
type InstallState struct {
	Fields   SaleFields // Stock may be less than 0
	Counters Counters
	Staged   Staged
}

// InstallCode is the outcome of Install.
type InstallCode string

// Every code of Install.
const (
	InstallInstalled  InstallCode = "installed"  // the sale is as it was sent
	InstallIncomplete InstallCode = "incomplete" // more or less is staged: stage it again
	InstallOvertaken  InstallCode = "overtaken"  // another verification, or another server process
)

// Install replaces what Redis has of a sale, its buyers and its waitlist by what was staged. Fields.Stock may be less
// than 0. After an error, or InstallIncomplete, all must be staged again: it may have been used up.
func Install(
	ctx context.Context, rdb redis.Scripter, keys InstallKeys, token string, state InstallState,
) (result InstallCode, err error) {
	defer named("install", &err)
	f, c, staged := &state.Fields, &state.Counters, &state.Staged
	if err := f.check(); err != nil {
		return "", err
	}
	reply, err := installScript.Run(ctx, rdb, []string{
		keys.Trusted, keys.Sale, keys.Buyers, keys.Staged,
		keys.Waitlist, keys.Waiting, keys.StagedWaitlist, keys.StagedWaiting, keys.Ended, keys.StagedEnded,
	}, token, staged.Slots, f.Stock, f.Total, f.OpensMS, f.ClosesMS, f.MaxQuantity, f.State, f.Version,
		c.Accepted, c.Released, f.Waitlist, c.Tickets, staged.Entries, staged.Enders, f.Group, f.GroupLimit,
		c.MovedIn, c.MovedOut, c.MovesDone, c.MovesSettled, c.moves()).Result()
	if err != nil {
		return "", err
	}
	return replyCode(reply, InstallInstalled, InstallIncomplete, InstallOvertaken)
}
