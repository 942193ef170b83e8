package worker_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// failoverOrders is how many orders flow over a fail-over of Postgres; SLUICE_FAILOVER_ORDERS sets another number.
func failoverOrders(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_FAILOVER_ORDERS")
	if text == "" {
		return 4000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 10 {
		t.Fatalf("SLUICE_FAILOVER_ORDERS=%s: want a number of at least 10", text)
	}
	return n
}

// twoHosts is an address that names both servers.
func twoHosts(a, b *localservers.Postgres) string {
	return strings.Replace(a.URL(), "host="+a.Dir(), "host="+a.Dir()+","+b.Dir(), 1) + "&port=5432,5432"
}

// failover is a rig on a primary whose commits wait for its standby, with a worker and orders that keep coming.
type failover struct {
	*pipelinetest.Rig
	primary, standby *localservers.Postgres
	orders           int
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{primary: testkit.PrivatePostgres(t), orders: failoverOrders(t)}
	f.standby = testkit.PrivateStandby(t, f.primary)
	address := strings.Replace(twoHosts(f.primary, f.standby), "port=5432&", "", 1)
	f.Rig = pipelinetest.New(t, pipelinetest.Options{
		DatabaseURL: address, Sale: pipeline.Sale{Total: int64(f.orders), PaymentWindow: time.Hour},
	})
	f.StartWorker(f.Store, worker.Options{BatchSize: 100})
	return f
}

// sell has buyers order while the change is made in the middle of it. It returns how long it took from the change until
// an order that was accepted after it was stored.
func (f *failover) sell(change func()) time.Duration {
	f.Helper()
	var all sync.WaitGroup
	half := f.orders / 2
	all.Go(func() { f.admit("first", half) })
	testkit.Eventually(f.T, pipelinetest.SettleLimit, "a part of the orders", func() bool {
		return rowsOf(f.T, f.primary) > half/10
	})
	change()
	began := time.Now()
	f.Admit("after", 1)
	all.Go(func() { f.admit("second", f.orders-half-1) })
	testkit.Eventually(f.T, pipelinetest.SettleLimit, "an order on the new primary", func() bool {
		return hasOrderOf(f.T, f.standby, "after")
	})
	took := time.Since(began)
	all.Wait()
	f.Settled()
	// A pool that only reads is not refused anything, and stays where it is.
	f.Auditor = audit.NewAuditor(f.Redis, f.Keys, f.OpenStore(f.Options.DatabaseURL))
	return took
}

// admit has so many buyers order, no more at a time than are never shed.
func (f *failover) admit(prefix string, n int) {
	f.Helper()
	const crowd = 200
	for i := 0; i < n; i += crowd {
		f.AdmitMany(fmt.Sprintf("%s-%d", prefix, i), min(crowd, n-i))
	}
}

func hasOrderOf(t *testing.T, server *localservers.Postgres, user string) (has bool) {
	t.Helper()
	ask(t, server, "select exists (select from orders where user_id = '"+user+"')", &has)
	return has
}

func rowsOf(t *testing.T, server *localservers.Postgres) (n int) {
	t.Helper()
	ask(t, server, "select count(*) from orders", &n)
	return n
}

// ask asks one of the servers, whatever its part is.
func ask(t *testing.T, server *localservers.Postgres, query string, into ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err == nil {
		defer func() { _ = conn.Close(t.Context()) }()
		err = conn.QueryRow(t.Context(), query).Scan(into...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAPromotionUnderLoad: the primary is killed while orders flow, and its standby takes over. Every order that was
// accepted has its row there: none was settled that only the dead disk had.
func TestAPromotionUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	took := f.sell(func() {
		if err := f.primary.Kill(); err != nil {
			t.Error(err)
		}
		if err := f.standby.Promote(f.Ctx()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d orders; stored again %s after the promotion", f.orders, took.Round(time.Millisecond))
	if n := rowsOf(t, f.standby); n != f.orders {
		t.Errorf("the new primary has %d orders, want %d", n, f.orders)
	}
	f.Balanced(f.Sale, int64(f.orders))
}

// TestASwitchOverUnderLoad: the primary takes no writes any more, and its sockets stay open. Persisting goes on with
// the new one, and the old one gets no write.
func TestASwitchOverUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	var left int
	took := f.sell(func() {
		var reloaded bool
		for _, statement := range []string{
			"alter system set default_transaction_read_only = on", "alter system set synchronous_standby_names = ''",
		} {
			run(t, f.primary, statement)
		}
		ask(t, f.primary, "select pg_reload_conf()", &reloaded)
		testkit.Eventually(t, pipelinetest.SettleLimit, "the standby to have all", func() bool {
			left = rowsOf(t, f.primary)
			return left == rowsOf(t, f.standby) && readOnly(t, f.primary)
		})
		if err := f.standby.Promote(f.Ctx()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d orders; stored again %s after the switch-over", f.orders, took.Round(time.Millisecond))
	if n := rowsOf(t, f.primary); n != left {
		t.Errorf("the old primary has %d orders, and had %d when it was left", n, left)
	}
	if n := rowsOf(t, f.standby); n != f.orders {
		t.Errorf("the new primary has %d orders, want %d", n, f.orders)
	}
	f.Balanced(f.Sale, int64(f.orders))
}

func readOnly(t *testing.T, server *localservers.Postgres) bool {
	t.Helper()
	var setting string
	ask(t, server, "show transaction_read_only", &setting)
	return setting == "on"
}

func run(t *testing.T, server *localservers.Postgres, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err == nil {
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.Exec(t.Context(), statement)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", statement, err))
	}
}
