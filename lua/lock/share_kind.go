package lock

import (
	"fmt"
	"strconv"
)

// Kind is a kind of share in a synchronizer that several callers may hold at once.
type Kind string

// The kinds of shares.
const (
	Reader Kind = "r"
	Writer Kind = "w"
	Permit Kind = "p"
)

// MaxAmount bounds the permits that are taken at once: each is a member of a set.
const MaxAmount = 100

// ShareKeys are the keys of a synchronizer, in one hash slot.
type ShareKeys struct{ Shares, Queue, Fence string }

// Share is the share that a caller wants. Amount and Limit count permits; for readers and writers they are 1 and 0.
type Share struct {
	Kind          Kind
	Amount, Limit int64
}

// Members are the names under which a share is held, for Renew.
func (s Share) Members(hold string) []string {
	if s.Kind != Permit {
		return []string{string(s.Kind) + " " + hold}
	}
	members := make([]string, s.Amount)
	for i := range members {
		members[i] = "p " + hold + " " + strconv.Itoa(i+1)
	}
	return members
}

func (s Share) check() error {
	switch {
	case s.Kind == Permit && (s.Amount < 1 || s.Amount > MaxAmount || s.Amount > s.Limit):
		return fmt.Errorf("%d permits of %d: use 1 to %d, and no more than there are", s.Amount, s.Limit, MaxAmount)
	case s.Kind != Permit && s != (Share{Kind: Reader, Amount: 1}) && s != (Share{Kind: Writer, Amount: 1}):
		return fmt.Errorf("unknown share %+v", s)
	default:
		return nil
	}
}
