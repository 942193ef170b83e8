package moves_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/moves"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
)

var four = []pipeline.Partition{0, 1, 2, 3}

// spreadSale is a sale of so many units over four partitions.
func spreadSale(id string, units int64) pipeline.Sale {
	return pipeline.Sale{ID: id, Total: units, MaxQuantity: 3, Partitions: four}
}

// api is an api process over spread sales: an admission with a mover, whose process dies as often as death says.
func api(r *pipelinetest.Rig, d *death) *admission.Controller {
	r.Helper()
	rdb := testkit.Redis(r.T)
	rdb.AddHook(dyingRedis{d})
	return r.NewAdmission(rdb, admission.Options{Elsewhere: r.Mover(rdb, dyingStore{r.Store, d})})
}

func (s *crowd) order(a *admission.Controller, user string, quantity int) {
	for {
		began := time.Now()
		got, err := a.Admit(s.r.Ctx(), s.sale, pipeline.OrderRequest{UserID: user, Quantity: quantity})
		ended := time.Now()
		switch {
		case err != nil && s.r.Ctx().Err() == nil: // 503: the buyer comes back
			s.later.Add(1)
			time.Sleep(time.Duration(quantity) * 5 * time.Millisecond)
			continue
		case err != nil:
			s.r.Errorf("%s: %v", user, err)
		case got.Result == admission.Accepted:
			s.mu.Lock()
			s.accepted++
			if began.After(s.lastAccept) {
				s.lastAccept = began
			}
			s.mu.Unlock()
		case got.Result == admission.SoldOut:
			s.mu.Lock()
			s.soldOut++
			if s.firstRefusal.IsZero() || ended.Before(s.firstRefusal) {
				s.firstRefusal = ended
			}
			s.mu.Unlock()
		default:
			s.r.Errorf("%s: got %s", user, got.Result)
		}
		return
	}
}

// crowd are the buyers of one sale, of one unit each.
type crowd struct {
	r    *pipelinetest.Rig
	sale *pipeline.Sale

	later atomic.Int64 // answers that told to come back

	mu                       sync.Mutex // protects the rest
	accepted, soldOut        int64
	lastAccept, firstRefusal time.Time // when the last accept was asked for, and the first refusal was answered
}

// check finds units that were not sold, and a refusal before somebody else asked and got one: no unit came back.
func (s *crowd) check() {
	s.r.Helper()
	if s.accepted != s.sale.Total {
		s.r.Errorf("%s: %d of %d units were sold, %d buyers refused", s.sale.ID, s.accepted, s.sale.Total, s.soldOut)
	}
	if s.lastAccept.After(s.firstRefusal) && s.soldOut > 0 {
		s.r.Errorf("%s: a buyer was refused %s before another one asked for a unit and got it", s.sale.ID,
			s.lastAccept.Sub(s.firstRefusal))
	}
}

// salesWanted is how many sales TestTheLastUnitIsSold has: MOVES_SALES, or few.
func salesWanted(t *testing.T) int {
	text := os.Getenv("MOVES_SALES")
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTheLastUnitIsSold: buyers hammer small sales over four partitions, in two apis whose processes die again and
// again between any two steps of a move. Somebody else finishes those. No buyer is refused while a unit is left, all
// units are sold, and the audit is exact.
func TestTheLastUnitIsSold(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	d := &death{chance: 0.05}
	apis := []*admission.Controller{api(r, d), api(r, d)}
	finisher := r.Mover(r.Redis, r.Store)
	stop := r.Background(func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := finisher.Finish(ctx, 20*time.Millisecond); err != nil && ctx.Err() == nil {
				r.Errorf("finish: %v", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	sales := salesWanted(t)
	var later int64
	const atOnce = 4
	places := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	var mu sync.Mutex
	for n := range sales {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			units := int64(1 + n%9)
			s := &crowd{r: r, sale: r.CreateSale(spreadSale(fmt.Sprintf("spread-%d", n), units))}
			pipelinetest.Together(int(units)+6, func(i int) { s.order(apis[i%2], fmt.Sprintf("buyer-%d", i), 1) })
			s.check()
			mu.Lock()
			defer mu.Unlock()
			later += s.later.Load()
		})
	}
	running.Wait()
	testkit.Eventually(t, pipelinetest.CallLimit, "all moves end", func() bool {
		return count(r, `select count(*) from unit_moves where state in ('intended', 'taken')`) == 0
	})
	stop()
	t.Logf("%d sales, %d moves, %d of which took nothing; %d steps died, %d times a buyer came back", sales,
		count(r, `select count(*) from unit_moves`), count(r, `select count(*) from unit_moves where state = 'void'`),
		d.deaths.Load(), later)
	if d.deaths.Load() == 0 || count(r, `select count(*) from unit_moves where units > 0`) == 0 {
		t.Error("nothing died, or nothing was moved: this proves nothing")
	}
	r.WorkAll()
	for n := range sales {
		sale := r.Stored(fmt.Sprintf("spread-%d", n))
		r.Balanced(sale, sale.Total)
	}
}

func count(r *pipelinetest.Rig, query string, args ...any) (n int64) {
	r.Helper()
	if err := r.SQL.QueryRow(r.Ctx(), query, args...).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// steps are those between which a process may die, in their order.
var steps = []string{
	"before begin", "after begin", "before take", "after take", "before taken", "after taken", "before give",
	"after give", "before given", "after given",
}

// TestAMoveOutlivesItsProcess: a process dies before or after each step of a move. What becomes of it then, by the
// table of decision 44: another process finishes it, or one of the two partitions is rebuilt. Whatever the dead
// process still sends after that changes nothing.
func TestAMoveOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"finished", "rebuilt", "from lost", "to lost", "both lost"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
			for i, at := range steps {
				outlive(r, fmt.Sprintf("sale-%d", i), at, after)
			}
		})
	}
}

func outlive(r *pipelinetest.Rig, id, at, after string) {
	r.Helper()
	what := at + ", then " + after
	sale := r.CreateSale(spreadSale(id, 40)) // 10 on each
	d := &death{at: at}
	rdb := testkit.Redis(r.T)
	rdb.AddHook(dyingRedis{d})
	dying := r.Mover(rdb, dyingStore{r.Store, d})
	if _, err := dying.Move(r.Ctx(), id, 0, 1, 4); !errors.Is(err, errDied) {
		r.Fatalf("%s: the move ended with %v", what, err)
	}
	switch after {
	case "rebuilt":
		rebuilt(r, id)
	case "from lost":
		lose(r, sale, 0)
	case "to lost":
		lose(r, sale, 1)
	case "both lost":
		lose(r, sale, 0, 1)
	}
	finisher := r.Mover(r.Redis, r.Store)
	if err := finisher.Finish(r.Ctx(), 0); err != nil {
		r.Fatalf("%s: %v", what, err)
	}
	if n := count(r, `select count(*) from unit_moves where sale_id = $1 and state in ('intended', 'taken')`, id); n != 0 {
		r.Errorf("%s: %d moves have not ended", what, n)
	}
	was := r.Dump(sale)
	late := r.Mover(r.Redis, r.Store)
	for _, state := range []moves.State{moves.Intended, moves.Taken} { // the dead process comes back
		m := moves.Move{SaleID: id, Number: 1, From: 0, To: 1, Wanted: 4, State: state}
		if state == moves.Taken {
			m.Units = 4
		}
		if count(r, `select count(*) from unit_moves where sale_id = $1`, id) > 0 && at != "before begin" {
			if state == moves.Taken && count(r, `select units from unit_moves where sale_id = $1`, id) != 4 {
				continue // it never learned of units that its move had taken
			}
			if _, err := moves.Advance(late, r.Ctx(), m, 4); err != nil {
				r.Errorf("%s: late, %s: %v", what, state, err)
			}
		}
	}
	if is := r.Dump(sale); is != was {
		r.Errorf("%s: a late process has changed\n%s\ninto\n%s", what, was, is)
	}
	if got := r.Stock(sale); got != 40 {
		r.Errorf("%s: %d units, want 40", what, got)
	}
	r.Balanced(sale, 0)
}

// rebuilt has an operator rebuild a sale.
func rebuilt(r *pipelinetest.Rig, id string) {
	r.Helper()
	if _, err := recovery.NewVerifier(r.VerifierConfig()).Rebuild(r.Ctx(), id, "op", true); err != nil {
		r.Fatal(err)
	}
}

// lose has the server of a partition forget the sale, and be another one.
func lose(r *pipelinetest.Rig, sale *pipeline.Sale, partitions ...pipeline.Partition) {
	r.Helper()
	for _, p := range partitions {
		if err := r.Redis.Del(r.Ctx(), r.Keys.Sale(p, sale.ID), r.Keys.Trusted(p)).Err(); err != nil {
			r.Fatal(err)
		}
	}
	r.Ensure()
}
