package admission_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/worker"
)

// asUser is a client of a server under a user's name.
func asUser(t *testing.T, serverURL, user, password string) *redis.Client {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return testkit.Client(t, u.String())
}

// An api and a worker whose user Redis refuses for a while, with their connections killed, go on as soon as it does
// not, and nothing that never came is read.
func TestARefusedUserComesBack(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	allow := func() {
		t.Helper()
		rule := []any{"ACL", "SETUSER", "shop", "reset", "on", ">secret", "~*", "&*", "+@all"}
		if err := r.Redis.Do(r.Ctx(), rule...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow()
	rdb := asUser(t, server.URL(), "shop", "secret")
	api := r.NewAdmission(rdb, admission.Options{RequestTimeout: time.Second})
	order := func(user string) error {
		_, err := api.Admit(r.Ctx(), r.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		return err
	}
	if err := order("before"); err != nil {
		t.Fatal(err)
	}
	owner := r.Redis
	r.Redis = rdb
	r.StartWorker(r.Store, worker.Options{})
	r.Redis = owner
	if err := owner.Do(r.Ctx(), "ACL", "SETUSER", "shop", "off").Err(); err != nil {
		t.Fatal(err)
	}
	if err := owner.Do(r.Ctx(), "CLIENT", "KILL", "USER", "shop").Err(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
		if err := order("meanwhile"); err == nil {
			t.Fatal("an order was accepted by a user whom Redis refuses: this is no test of it")
		}
		if features, err := redisstore.Probe(r.Ctx(), rdb); err == nil {
			t.Fatalf("a refused connection was probed: %+v", features)
		}
		time.Sleep(50 * time.Millisecond)
	}
	allow()
	testkit.Eventually(t, 20*time.Second, "orders are accepted again", func() bool { return order("after") == nil })
	r.Settled()
}
