package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

const (
	poisonOrders = 10_000
	poisonRounds = 2 // runs of each kind, taken in turns, so that a busy machine is busy for all of them
)

// TestOnePoisonedAmongTenThousand (I8): one entry in the middle of ten thousand can't become an order; the 9,999 others
// do, without a noticeable delay. It fails on a stall, never on a busy machine: the bound is three times the clean
// runs, which are measured in between, and 10 s.
func TestOnePoisonedAmongTenThousand(t *testing.T) {
	poisons := map[string]func(*pipelinetest.Rig, redis.XMessage){
		"none": func(*pipelinetest.Rig, redis.XMessage) {},
		"undecodable": func(r *pipelinetest.Rig, entry redis.XMessage) {
			entry.Values["k"] = "\xff"
			replaceEntry(r, entry)
		},
		"refused": func(r *pipelinetest.Rig, _ redis.XMessage) {
			r.Exec(0, `alter table orders add constraint no_poison check (user_id <> 'poison' or status = 'rejected')`)
		},
	}
	took := map[string]time.Duration{}
	for range poisonRounds {
		for _, name := range []string{"none", "undecodable", "refused"} {
			took[name] += poisonedRun(t, name, poisons[name])
		}
	}
	for _, name := range []string{"undecodable", "refused"} {
		t.Logf("%d orders of which one is %s: %s a run; none: %s a run", poisonOrders, name,
			(took[name] / poisonRounds).Round(time.Millisecond), (took["none"] / poisonRounds).Round(time.Millisecond))
		if most := 3*took["none"] + 10*time.Second; took[name] > most {
			t.Errorf("%s: %d runs took %s, and without poison %s: that is a stall", name, poisonRounds, took[name], took["none"])
		}
	}
}

// poisonedRun accepts the orders, spoils the one in the middle, runs a worker until all is settled, and returns how
// long that took.
func poisonedRun(t *testing.T, name string, spoil func(*pipelinetest.Rig, redis.XMessage)) time.Duration {
	t.Helper()
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale:      pipeline.Sale{Total: poisonOrders},
		Admission: admission.Options{QueueLimit: poisonOrders, RequestTimeout: pipelinetest.CallLimit},
	})
	r.AdmitMany("before", poisonOrders/2)
	middle := r.Admit("poison", 1)
	entries := r.Entries(r.Sale.Partitions[0])
	spoil(r, entries[len(entries)-1])
	r.AdmitMany("after", poisonOrders/2-1)

	began := time.Now()
	worker := r.StartWorker(r.Store, worker.Options{})
	r.Settled()
	elapsed := time.Since(began)
	worker.Stop()

	persisted, letters := poisonOrders, map[string]int{}
	if name != "none" {
		persisted, letters[name] = poisonOrders-1, 1
	}
	var live int
	if err := r.SQL.QueryRow(r.Ctx(), `select count(*) from orders where closed_at is null`).Scan(&live); err != nil {
		t.Fatal(err)
	}
	if live != persisted {
		t.Errorf("%s: %d orders stand, want %d", name, live, persisted)
	}
	if got := r.Letters(); fmt.Sprint(got) != fmt.Sprint(letters) {
		t.Errorf("%s: got letters %v, want %v", name, got, letters)
	}
	if name == "undecodable" && r.MustReplay(r.LastLetter()) != middle.OrderID {
		t.Error("the replay did not make the order that the buyer has a receipt for")
	}
	if name == "refused" {
		cured(r)
	}
	r.Balanced(r.Sale, poisonOrders)
	return elapsed
}

// cured replays the refused order once Postgres accepts it.
func cured(r *pipelinetest.Rig) {
	r.Helper()
	r.Exec(0, `alter table orders drop constraint no_poison`)
	r.MustReplay(r.LastLetter())
	r.Work()
	if r.Slots(r.Sale)["poison"] == (lua.Slot{}) {
		r.Error("the buyer of the refused order has no slot")
	}
}

// replaceEntry puts an entry in the place of the newest one, as a fault in memory would.
func replaceEntry(r *pipelinetest.Rig, entry redis.XMessage) {
	r.Helper()
	p := r.Sale.Partitions[0]
	if err := r.Redis.XDel(r.Ctx(), r.Keys.Orders(p), entry.ID).Err(); err != nil {
		r.Fatal(err)
	}
	if err := r.Redis.XAdd(r.Ctx(), &redis.XAddArgs{Stream: r.Keys.Orders(p), Values: entry.Values}).Err(); err != nil {
		r.Fatal(err)
	}
}
