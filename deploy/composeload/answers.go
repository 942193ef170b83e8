package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
)

// maxFaults is how many broken answers are told in full; the rest only count.
const maxFaults = 10

// answers collects what the API said, and holds it to the contract: one order per buyer, and the same one every time.
type answers struct {
	mu      sync.Mutex        // protects the rest
	orders  map[string]string // buyer → order id, as accepted
	named   map[string]string // buyer → order id that an already-ordered answer named
	counts  map[string]int    // by what was said
	retries int
	broken  int
	faults  []error // the first maxFaults of the broken answers
}

func newAnswers() *answers {
	return &answers{orders: map[string]string{}, named: map[string]string{}, counts: map[string]int{}}
}

// add takes the answer to one request. It is called from many goroutines.
func (a *answers) add(r request, got answer, retries int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retries += retries
	switch {
	case got.Status == http.StatusAccepted && got.OrderID != "":
		a.accepted(r, got.OrderID)
	case got.Status == http.StatusConflict && got.Code == "already-ordered" && got.OrderID != "":
		a.counts[got.Code]++
		a.named[r.buyer] = got.OrderID
	case got.Status == http.StatusConflict && got.Code == "sold-out":
		a.counts[got.Code]++
	default:
		a.fault(fmt.Errorf("%s, key %s: unexpected answer: status %d, code %q, order %q", r.buyer, r.key, got.Status, got.Code, got.OrderID))
	}
}

func (a *answers) accepted(r request, orderID string) {
	first, repeated := a.orders[r.buyer]
	switch {
	case !repeated:
		a.orders[r.buyer] = orderID
		a.counts["accepted"]++
	case first == orderID:
		a.counts["repeated"]++
	default:
		a.fault(fmt.Errorf("%s, key %s: has two orders, %s and %s", r.buyer, r.key, first, orderID))
	}
}

func (a *answers) fault(err error) {
	a.broken++
	if len(a.faults) < maxFaults {
		a.faults = append(a.faults, err)
	}
}

// check returns what broke the contract, nil if nothing did. It is called when all requests are answered.
func (a *answers) check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, buyer := range slices.Sorted(maps.Keys(a.named)) {
		if a.named[buyer] != a.orders[buyer] {
			a.fault(fmt.Errorf("%s: already-ordered names %s, accepted was %q", buyer, a.named[buyer], a.orders[buyer]))
		}
	}
	if a.broken == 0 {
		return nil
	}
	return fmt.Errorf("%d answers break the contract, such as:\n%w", a.broken, errors.Join(a.faults...))
}

// write puts the ids of accepted orders into a file, sorted, one per line.
func (a *answers) write(file string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Values(a.orders)) {
		text.WriteString(id + "\n")
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

// String tells the counts, in the order of their names.
func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := make([]string, 0, len(a.counts)+1)
	for _, what := range slices.Sorted(maps.Keys(a.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", a.counts[what], what))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d sent again", a.retries)), ", ")
}
