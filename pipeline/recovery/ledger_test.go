package recovery_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/worker"
)

// ledger is a rig on a Postgres of its own that can go back, with everything that runs beside it.
type ledger struct {
	*pipelinetest.Rig
	live map[string]admission.Receipt // what buyers hold and have not ended, by buyer
}

func newLedger(t *testing.T, url string, sale pipeline.Sale) *ledger {
	t.Helper()
	l := &ledger{live: map[string]admission.Receipt{}, Rig: pipelinetest.New(t, pipelinetest.Options{
		RedisURL: testkit.PrivateRedis(t).URL(), DatabaseURL: url, Sale: sale,
	})}
	l.Verifies()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Postgres to be examined", l.examined)
	l.StartWorker(l.Store, worker.Options{BatchSize: 50}, l.Releaser().Job())
	return l
}

// examined reports whether the server that answers was compared with Redis.
func (l *ledger) examined() bool {
	var examined bool
	err := l.SQL.QueryRow(l.Ctx(), `
		select exists (select from examined_server where identity = server_identity())`).Scan(&examined)
	return err == nil && examined
}

// buy has buyers order, and waits until all of it is stored and settled.
func (l *ledger) buy(prefix string, n int) {
	l.Helper()
	for i, receipt := range l.AdmitMany(prefix, n) {
		l.live[fmt.Sprintf("%s-%d", prefix, i)] = receipt
	}
	l.Settled()
}

// cancel ends orders, and waits until Redis has their units.
func (l *ledger) cancel(prefix string, n int) {
	l.Helper()
	for i := range n {
		user := fmt.Sprintf("%s-%d", prefix, i)
		_, changed, err := l.Store.CancelOrder(l.Ctx(), l.Sale.ID, l.live[user].OrderID, user)
		if err != nil || !changed {
			l.Fatalf("cancel the order of %s: %t, %v", user, changed, err)
		}
		delete(l.live, user)
	}
	testkit.Eventually(l.T, pipelinetest.SettleLimit, "every release is applied", func() bool {
		due, err := l.Store.UnappliedReleases(l.Ctx(), pipeline.SalePartition{}, 1)
		return err == nil && len(due) == 0
	})
}

// whole expects every order that a buyer holds to be live in Postgres, no other, and the units to add up.
func (l *ledger) whole(began time.Time) {
	l.Helper()
	testkit.Eventually(l.T, pipelinetest.SettleLimit, "Postgres to have all", func() bool {
		return l.examined() && l.Trusted()
	})
	l.Logf("whole again %s after it was back", time.Since(began).Round(time.Millisecond))
	l.Settled()
	for user, receipt := range l.live {
		order, err := l.Store.LatestOrder(l.Ctx(), l.Sale.ID, user)
		if err != nil || order.ID != receipt.OrderID || !order.Status.Live() {
			l.Errorf("the order of %s: got %s (%s), %v; want %s, live", user, order.ID, order.Status, err, receipt.OrderID)
		}
	}
	if left, want := l.Stock(l.Sale), l.Sale.Total-int64(len(l.live)); left != want {
		l.Errorf("Redis has %d units left, want %d", left, want)
	}
	l.Balanced(l.Sale, int64(len(l.live)))
}

// losses counts what was recorded of losses.
func (l *ledger) losses() []recovery.LedgerLoss {
	l.Helper()
	losses, err := l.Store.LedgerLosses(l.Ctx())
	if err != nil {
		l.Fatal(err)
	}
	return losses
}

// forgets is what happens while nothing reaches the other Postgres: orders come, orders of before end and their buyers
// order again, and orders come and end.
func (l *ledger) forgets() {
	l.buy("forgotten", 60)
	l.cancel("early", 20)
	l.buy("early", 5) // some of them again, with the units of before
	l.cancel("forgotten", 10)
}

// waits is what comes while Postgres is away, and would be the first that the other one stores: it would hide what that
// has forgotten, and meet orders that had ended.
func (l *ledger) waits() {
	l.Helper()
	for i, receipt := range l.AdmitMany("waits", 10) {
		l.live[fmt.Sprintf("waits-%d", i)] = receipt
	}
	for i := range 5 {
		user := fmt.Sprintf("early-%d", 10+i)
		l.live[user] = l.Admit(user, 1)
	}
}

// found expects the latest loss to be over, of which so many orders were stored again, ended and only counted.
func (l *ledger) found(restored, ended, missing int64) {
	l.Helper()
	losses := l.losses()
	if len(losses) == 0 || losses[0].FinishedAt.IsZero() {
		l.Fatalf("got %+v, want a loss that is over", losses)
	}
	var sum recovery.SaleLoss
	for _, s := range losses[0].Sales {
		sum.Restored, sum.Ended, sum.Missing = sum.Restored+s.Restored, sum.Ended+s.Ended, sum.Missing+s.Missing
		sum.Refused += s.Refused
	}
	if sum != (recovery.SaleLoss{Restored: restored, Ended: ended, Missing: missing}) {
		l.Errorf("got %+v; want %d restored, %d ended, %d missing, none refused", sum, restored, ended, missing)
	}
}

// TestALaggingStandbyIsMadeWhole (I4): a standby that lacks the latest commits becomes the primary. Orders that were
// acknowledged have a row again, units that had been given back are neither sold twice nor lost, and it is on record.
func TestALaggingStandbyIsMadeWhole(t *testing.T) {
	t.Parallel()
	primary := testkit.PrivatePostgres(t)
	standby, err := primary.StartStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, twoHosts(primary, standby), pipeline.Sale{
		Total: 150, PaymentWindow: time.Hour, Partitions: []pipeline.Partition{1, 3},
	})
	l.buy("early", 50)
	follows(l, standby, 50)
	do(t, standby.Kill())
	l.forgets()
	do(t, primary.Kill())
	l.waits()
	do(t, standby.Restart(l.Ctx()))
	do(t, standby.Promote(l.Ctx()))
	l.whole(time.Now())
	l.found(70, 20, 10)
	l.claims(map[string]int{recovery.ClaimRestored: 70, recovery.ClaimEnded: 20, recovery.ClaimUnpaid: 30})
	l.buy("late", 20)
	l.whole(time.Now())
}

// claims expects so many orders to ask about, by the reason, after the only loss. Of those that came and ended, only
// the ones are known that a journal still had.
func (l *ledger) claims(want map[string]int) {
	l.Helper()
	got := map[string]int{}
	do(l.T, l.Store.EachClaim(l.Ctx(), l.losses()[0].ID, func(c *recovery.Claim) error {
		got[c.Why]++
		return nil
	}))
	delete(got, recovery.ClaimRefused)
	if !maps.Equal(got, want) {
		l.Errorf("to be asked about: got %v, want %v", got, want)
	}
}

// twoHosts is an address that names both servers.
func twoHosts(a, b *localservers.Postgres) string {
	hosts := strings.Replace(a.URL(), "host="+a.Dir(), "host="+a.Dir()+","+b.Dir(), 1)
	return strings.Replace(hosts, "port=5432&", "", 1) + "&port=5432,5432"
}

// follows waits until a standby has so many orders.
func follows(l *ledger, standby *localservers.Postgres, orders int) {
	l.Helper()
	other, err := pgx.Connect(l.Ctx(), standby.URL())
	do(l.T, err)
	defer func() { _ = other.Close(l.Ctx()) }()
	testkit.Eventually(l.T, pipelinetest.SettleLimit, "the standby to have them", func() bool {
		var n int
		return other.QueryRow(l.Ctx(), `select count(*) from orders`).Scan(&n) == nil && n == orders
	})
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestARestoredBackupIsMadeWhole: the same of a database that was restored from a copy.
func TestARestoredBackupIsMadeWhole(t *testing.T) {
	t.Parallel()
	server := testkit.PrivatePostgres(t)
	l := newLedger(t, server.URL(), pipeline.Sale{Total: 150, PaymentWindow: time.Hour})
	l.buy("early", 50)
	do(t, server.Stop(l.Ctx()))
	saved, err := server.SaveData()
	do(t, err)
	do(t, server.Restart(l.Ctx()))
	testkit.Eventually(t, pipelinetest.SettleLimit, "Postgres to be examined", l.examined)
	if n := len(l.losses()); n != 0 {
		t.Fatalf("%d losses after a restart that lost nothing", n)
	}
	l.forgets()
	do(t, server.Kill())
	do(t, server.RestoreData(saved))
	do(t, server.Restart(l.Ctx()))
	l.whole(time.Now())
	l.found(55, 20, 10)
}

// TestOnlyOneKindIsForgotten: only orders are lost, or only that orders had ended, and their units were sold to others.
func TestOnlyOneKindIsForgotten(t *testing.T) {
	t.Parallel()
	server := testkit.PrivatePostgres(t)
	l := newLedger(t, server.URL(), pipeline.Sale{Total: 60, PaymentWindow: time.Hour})
	l.buy("early", 50)
	for _, kind := range []struct {
		forgets                  func()
		restored, ended, missing int64
	}{
		{func() { l.cancel("early", 20) }, 0, 20, 0},
		{func() { l.buy("late", 25) }, 25, 0, 0},
	} {
		do(t, server.Stop(l.Ctx()))
		saved, err := server.SaveData()
		do(t, err)
		do(t, server.Restart(l.Ctx()))
		kind.forgets()
		do(t, server.Kill())
		do(t, server.RestoreData(saved))
		do(t, server.Restart(l.Ctx()))
		l.whole(time.Now())
		l.found(kind.restored, kind.ended, kind.missing)
	}
}

// TestNoFalseAlarm: restarts, a fail-over to a standby that has all, and a Redis that has lost everything are no loss
// of Postgres.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	primary := testkit.PrivatePostgres(t)
	standby := testkit.PrivateStandby(t, primary)
	l := newLedger(t, twoHosts(primary, standby), pipeline.Sale{Total: 200, PaymentWindow: time.Hour})
	l.buy("early", 50)
	l.cancel("early", 20)
	do(t, primary.Kill())
	do(t, primary.Restart(l.Ctx()))
	l.whole(time.Now())
	l.buy("crash", 20)
	l.Flush()
	l.whole(time.Now())
	l.buy("flush", 20)
	do(t, primary.Kill())
	do(t, standby.Promote(l.Ctx()))
	l.whole(time.Now())
	l.buy("promotion", 20)
	l.whole(time.Now())
	if losses := l.losses(); len(losses) > 0 {
		t.Errorf("got %+v, want no loss", losses)
	}
}
