package pipelinetest

import (
	"bytes"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline/sales"
)

// OpenStore opens a store at a URL until the test ends.
func (r *Rig) OpenStore(url string) *db.Store {
	r.Helper()
	store, err := db.Open(r.Ctx(), url, db.Options{MaxConns: 2 * sales.CatalogueLookups})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(store.Close)
	return store
}

// WorkerStore is a store that may do no more than a worker's. The rig's own may do everything.
func (r *Rig) WorkerStore() *db.Store {
	r.Helper()
	return r.OpenStore(testkit.AsWorker(r.Options.DatabaseURL))
}

// WithoutTLS is an address whose traffic a proxy can read.
func WithoutTLS(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

// LockedLog is a log that goroutines write.
type LockedLog struct {
	mu  sync.Mutex // protects the buffer
	buf bytes.Buffer
}

func (l *LockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Count is how often a text stands in the log.
func (l *LockedLog) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// Through puts a proxy before a server.
func Through(t *testing.T, url string) *faultnet.Proxy {
	t.Helper()
	proxy, err := faultnet.Listen(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	return proxy
}

// RedisURL is where the shared Redis is reached.
func RedisURL(r *Rig) string {
	if o := r.Redis.(*redis.Client).Options(); o.Network == "tcp" {
		return "redis://" + o.Addr
	}
	return "unix://" + r.Redis.(*redis.Client).Options().Addr
}
