package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/programs"
	"sluice/internal/testkit"
)

// frozenLimit is generous: a busy machine is no fault. On an idle one the others sell again within ten seconds; one
// that waits for the elected process waits for as long as it stands still.
const frozenLimit = time.Minute

// TestAFrozenVerifier: Redis loses everything, and the process that was elected to repair it stands still in the middle
// of it. Another one takes over, and no order is lost, by the frozen one neither. An api that stands still is worse
// than a worker: the others wait for its accept journal, too.
func TestAFrozenVerifier(t *testing.T) {
	t.Parallel()
	t.Run("any", func(t *testing.T) { frozenVerifier(t, false) })
	t.Run("an api", func(t *testing.T) { frozenVerifier(t, true) })
}

func frozenVerifier(t *testing.T, api bool) {
	const sold, spare = 300, 100
	d := newDisaster(t, sold+spare)
	rebuilt := make(chan string, 1)
	d.onLine = func(line programs.Line) {
		if strings.Contains(line.Message, "a sale was rebuilt in Redis") {
			select {
			case rebuilt <- line.Process:
			default: // it is frozen
			}
		}
	}
	d.launch()
	told := d.sell(sold)
	for _, p := range d.running {
		if api && p.URL() == "" { // then a worker can't be elected
			if err := p.Pause(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	var frozen *programs.Process
	select {
	case name := <-rebuilt:
		for _, p := range d.running {
			if p.Name == name {
				frozen = p
			}
		}
	case <-time.After(frozenLimit):
		t.Fatal("nobody has repaired Redis")
	}
	if err := frozen.Pause(); err != nil {
		t.Fatal(err)
	}
	n := 0
	testkit.Eventually(t, frozenLimit, "another api accepts orders", func() bool {
		for _, p := range d.running {
			if p == frozen || p.URL() == "" {
				continue
			}
			n++
			if status, id := d.order(p.URL(), fmt.Sprint("late-", n)); status == http.StatusAccepted {
				told[id] = true
				return true
			}
		}
		return false
	})
	t.Logf("%s was frozen; orders were accepted again %s after the loss", frozen.Name, time.Since(lost))
	for _, p := range d.running {
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	d.settled(told)
}
