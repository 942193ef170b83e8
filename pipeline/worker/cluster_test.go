package worker_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/worker"
)

// clusterRig is a rig on a Redis Cluster of its own, with a sale that is spread over four partitions on all three
// nodes.
type clusterRig struct {
	*pipelinetest.Rig
	cluster *localservers.RedisCluster
	scripts map[string]string // by hash: names of the scripts that were found on no node yet
}

const clusterShare = 6 // units of the sale on each partition

func newClusterRig(t *testing.T, config ...string) *clusterRig {
	t.Helper()
	cluster := testkit.PrivateCluster(t, config...)
	sale := pipeline.Sale{
		Total: 4 * clusterShare, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR", Waitlist: 1000,
		Partitions: []pipeline.Partition{0, 1, 2, 3},
	}
	r := &clusterRig{
		cluster: cluster, scripts: map[string]string{},
		Rig: pipelinetest.New(t, pipelinetest.Options{RedisURL: cluster.URL(), Sale: sale}),
	}
	for name, source := range lua.Sources() {
		r.scripts[redis.NewScript(source).Hash()] = name
	}
	for n := range cluster.Nodes() {
		if len(r.partitionsOn(n)) == 0 {
			t.Fatalf("node %d has no partition", n)
		}
	}
	return r
}

func (r *clusterRig) node(n int) *redis.Client {
	r.Helper()
	return testkit.Client(r.T, r.cluster.Nodes()[n].URL())
}

func (r *clusterRig) partitionsOn(n int) (on []pipeline.Partition) {
	r.Helper()
	node := r.node(n)
	for _, p := range r.Sale.Partitions {
		if node.Exists(r.Ctx(), r.Keys.Sale(p, r.Sale.ID)).Val() == 1 {
			on = append(on, p)
		}
	}
	return on
}

// noteScripts removes the scripts from the list that some node has by now; a node that restarts forgets them.
func (r *clusterRig) noteScripts() {
	r.Helper()
	for n := range r.cluster.Nodes() {
		node := r.node(n)
		for hash := range r.scripts {
			if known := node.ScriptExists(r.Ctx(), hash).Val(); len(known) == 1 && known[0] {
				delete(r.scripts, hash)
			}
		}
	}
}

// buyers are n on each partition: the first four are one of each, and so on.
func (r *clusterRig) buyers(prefix string, n int) []string {
	partitions := len(r.Sale.Partitions)
	users, on := make([]string, n*partitions), make([]int, partitions)
	for i, found := 0, 0; found < len(users); i++ {
		user := fmt.Sprintf("%s-%d", prefix, i)
		p := int(r.Sale.PartitionOf(user))
		if on[p] == n {
			continue
		}
		users[on[p]*partitions+p] = user
		on[p]++
		found++
	}
	return users
}

// order repeats the orders while nodes are away. A buyer whose reply was lost has ordered already.
func (r *clusterRig) order(users ...string) {
	r.Helper()
	pipelinetest.Together(len(users), func(i int) {
		for {
			decision, err := r.Try(pipeline.OrderRequest{UserID: users[i], Quantity: 1})
			switch {
			case err == nil && (decision.Result == admission.Accepted || decision.Result == admission.AlreadyOrdered):
				return
			case err == nil, !pipelinetest.Busy(err) && pipeline.KindOf(err) != pipeline.KindNotLoaded, r.Ctx().Err() != nil:
				r.Errorf("order of %s: got %q, %v", users[i], decision.Result, err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	if r.Failed() {
		r.FailNow()
	}
}

func (r *clusterRig) cancel(users ...string) {
	r.Helper()
	lookup := lifecycle.NewLookup(r.Redis, r.Keys, r.Store)
	canceller := lifecycle.NewCanceller(lookup, r.Store, r.Notifier(), r.Metrics.Lifecycle)
	slots := r.Slots(r.Sale)
	for _, user := range users {
		if _, err := canceller.Cancel(r.Ctx(), r.Sale, user, slots[user].OrderID); err != nil {
			r.Fatalf("cancel the order of %s: %v", user, err)
		}
	}
}

// serve runs a worker with every job that moves units.
func (r *clusterRig) serve() *pipelinetest.RunningWorker {
	r.Helper()
	releaser := r.Releaser()
	return r.StartWorker(r.Store, worker.Options{}, r.Payments().Job(), releaser.Job(), r.HandOver().Job(r.Catalogue()))
}

func (r *clusterRig) orders(status string) (n int) {
	if err := r.SQL.QueryRow(r.Ctx(), `select count(*) from orders where status = $1`, status).Scan(&n); err != nil {
		r.Error(err)
	}
	return n
}

// examined reports whether this Postgres was compared with Redis, which needs every node.
func (r *clusterRig) examined() (is bool) {
	query := `select exists (select from examined_server where identity = server_identity())`
	if err := r.SQL.QueryRow(r.Ctx(), query).Scan(&is); err != nil {
		r.Error(err)
	}
	return is
}

// flood has newcomers ask for units of a sale that has none, until they are answered without Redis.
func (r *clusterRig) flood() {
	r.Helper()
	n := 0
	testkit.Eventually(r.T, pipelinetest.CallLimit, "refusals need no Redis", func() bool {
		n++
		pipelinetest.Together(400, func(i int) {
			got, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("newcomer-%d-%d", n, i), Quantity: 1})
			if err != nil || got.Result != admission.SoldOut {
				r.Errorf("a newcomer: got %q, %v, want %q", got.Result, err, admission.SoldOut)
			}
		})
		return r.Count("sluice_admission_remembered_total") > 0
	})
}

// TestASaleOnACluster runs a whole sale, with all that the scripts do, on a real Redis Cluster: orders, payments that
// overtake them, a dead worker's events, a node that dies and comes back, a flood when nothing is left, cancelled
// units that are handed over to the waitlist, a node that loses everything and is rebuilt, a restock. The books are
// exact after each part, and every script has run.
func TestASaleOnACluster(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t)
	r.Verifies()
	const lost = 2 // the node that fails
	first, second := r.buyers("first", clusterShare/2), r.buyers("second", clusterShare/2)

	// Orders and payments that no worker processes yet, and a worker that died with events in flight.
	r.order(first...)
	deliverTo(r.Rig, "dead", 2)
	service, slots := r.Payments(), r.Slots(r.Sale)
	pipelinetest.Together(len(first)+1, func(i int) {
		receipt := admission.Receipt{SaleID: r.Sale.ID, OrderID: uuid.Must(uuid.NewV7()).String()} // of no order
		if i < len(first) {
			receipt.OrderID = slots[first[i]].OrderID
		}
		got, err := service.Pay(r.Ctx(), pipelinetest.PaymentFor(&receipt, i))
		if err != nil || got.Outcome != payments.Waiting {
			t.Errorf("payment %d: got %s, %v", i, got.Outcome, err)
		}
	})
	r.noteScripts()

	// A node dies and comes back while workers work and buyers order; its disk has everything.
	worker := r.serve()
	if err := r.cluster.Nodes()[lost].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.Nodes()[lost].Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.order(second...)
	r.Settled()
	testkit.Eventually(t, pipelinetest.SettleLimit, "the first are paid",
		func() bool { return r.orders("paid") == len(first) })
	r.Balanced(r.Sale, r.Sale.Total)
	if got := r.Rebuilds(); len(got) != 0 {
		t.Errorf("the node that came back was rebuilt: %+v", got)
	}

	// Sold out on every partition: two buyers wait on each, one leaves, and the others get what is cancelled.
	waitlist, waiting := r.Waitlist(), r.buyers("waits", 2)
	for _, user := range waiting {
		r.Joins(waitlist, user, 1)
	}
	if _, err := waitlist.Leave(r.Ctx(), r.Sale, waiting[7]); err != nil {
		t.Errorf("leave: %v", err)
	}
	r.flood()
	r.cancel(second[:4]...)
	testkit.Eventually(t, pipelinetest.SettleLimit, "a unit is handed over on each partition", func() bool {
		return len(r.Queue()) == 3
	})
	r.Settled()
	r.Balanced(r.Sale, r.Sale.Total)
	worker.Stop()

	// A node loses everything while cancelled units are to be released: it is rebuilt, and they go to the waitlist.
	r.cancel(second[4:8]...)
	if err := r.node(lost).FlushAll(r.Ctx()).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "the node is rebuilt", r.Trusted)
	rebuilt := map[pipeline.Partition]bool{}
	for _, report := range r.Rebuilds() {
		rebuilt[report.Partition] = true
	}
	if want := r.partitionsOn(lost); !slices.Equal(slices.Sorted(maps.Keys(rebuilt)), want) {
		t.Errorf("rebuilt: %v, want %v, which are on the node", rebuilt, want)
	}
	r.serve()
	testkit.Eventually(t, pipelinetest.SettleLimit, "the waitlist is empty", func() bool { return len(r.Queue()) == 0 })
	r.Settled()
	r.Balanced(r.Sale, r.Sale.Total-1)

	// More is sold after a restock.
	restock := pipeline.SaleChange{AddStock: int64(4 * clusterShare)}
	if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", restock); err != nil {
		t.Fatal(err)
	}
	r.Sale = r.Stored(r.Sale.ID)
	mover := r.Mover(r.Redis, r.Store)
	for _, way := range [][2]pipeline.Partition{{0, 1}, {1, 0}} { // there and back: every share is sold below
		if moved, err := mover.Move(r.Ctx(), r.Sale.ID, way[0], way[1], 2); err != nil || moved.Units != 2 {
			t.Errorf("move from %s to %s: %+v, %v", way[0], way[1], moved, err)
		}
	}
	r.order(r.buyers("later", clusterShare)...)
	r.Settled()
	r.Balanced(r.Sale, r.Sale.Total-1)

	// A sale that is not over stays, although somebody takes it for over.
	gone, err := lua.Retire(r.Ctx(), r.Redis, r.Keys.ForSale(r.Sale.Partitions[0], r.Sale.ID), r.Sale.Version, "")
	if gone || err == nil {
		t.Errorf("retire a sale that is open: got %t, %v, want an error", gone, err)
	}

	r.noteScripts()
	for _, script := range r.scripts {
		t.Errorf("%s did not run", script)
	}
	if got := r.Letters(); len(got) != 0 {
		t.Errorf("dead letters: %v", got)
	}
	for n := range r.cluster.Nodes() {
		if stats := r.node(n).Info(r.Ctx(), "errorstats").Val(); strings.Contains(stats, "CROSSSLOT") {
			t.Errorf("node %d refused keys of several slots: %s", n, stats)
		}
	}
}

// While a node is dead and no other takes its place, one that restarts is verified, and sells again.
func TestADeadNodeHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, "cluster-require-full-coverage no")
	r.Verifies()
	testkit.Eventually(t, pipelinetest.SettleLimit, "Postgres is compared with all nodes", func() bool {
		return r.Trusted() && r.examined()
	})
	const dead, restarts = 2, 0
	nodes, open := r.cluster.Nodes(), r.partitionsOn(restarts)
	if err := nodes[dead].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[restarts].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[restarts].Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	users := r.buyers("buyer", 1)
	for _, p := range open {
		r.order(users[p])
	}
	if err := nodes[dead].Restart(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "all nodes are verified again", r.Trusted)
	r.order(users...) // those who have an order already keep it
	r.serve()
	r.Settled()
	r.Balanced(r.Sale, int64(len(users)))
	if got := r.Rebuilds(); len(got) != 0 {
		t.Errorf("rebuilt: %+v, want none: the disks have everything", got)
	}
}

// A cluster is as good as its worst node: it is refused when one of them may evict orders, or loses what it accepted.
func TestEveryNodeOfAClusterIsProbed(t *testing.T) {
	t.Parallel()
	cluster := testkit.PrivateCluster(t)
	rdb, ctx := testkit.ClusterClient(t, cluster.URL()), t.Context()
	probe := func() redisstore.Features {
		t.Helper()
		features, err := redisstore.Probe(ctx, rdb)
		if err != nil {
			t.Fatal(err)
		}
		return features
	}
	if err := probe().Require(pipeline.DurabilityFsync); err != nil {
		t.Errorf("a good cluster: %v", err)
	}
	for n, server := range cluster.Nodes() {
		node := testkit.Client(t, server.URL())
		settings := map[string][2]string{"maxmemory-policy": {"allkeys-lru", "noeviction"}, "appendonly": {"no", "yes"}}
		for setting, values := range settings {
			if err := node.ConfigSet(ctx, setting, values[0]).Err(); err != nil {
				t.Fatal(err)
			}
			if err := probe().Require(pipeline.DurabilityFsync); pipeline.KindOf(err) != pipeline.KindInvalid {
				t.Errorf("node %d with %s %s: got %v, want KindInvalid", n, setting, values[0], err)
			}
			if err := node.ConfigSet(ctx, setting, values[1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cluster.Nodes()[1].Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := redisstore.Probe(ctx, rdb)
	pipelinetest.WantKind(t, err, pipeline.KindUnavailable)
}
