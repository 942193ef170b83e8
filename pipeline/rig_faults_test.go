package pipeline_test

import (
	"bytes"
	"net/url"
	"strings"
	"sync"
	"testing"

	"sluice/db"
	"sluice/internal/faultnet"
	"sluice/pipeline"

	"github.com/redis/go-redis/v9"
)

func (r *rig) openStore(url string) *db.Store {
	r.Helper()
	store, err := db.Open(r.ctx(), url, db.Options{MaxConns: 2 * pipeline.CatalogueLookups})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(store.Close)
	return store
}

// withoutTLS makes sure that a proxy can read along.
func withoutTLS(t *testing.T, address string) string {
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

// lockedLog is a log that goroutines write.
type lockedLog struct {
	mu  sync.Mutex // protects the buffer
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func through(t *testing.T, url string) *faultnet.Proxy {
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

func redisURL(r *rig) string {
	if o := r.rdb.(*redis.Client).Options(); o.Network == "tcp" {
		return "redis://" + o.Addr
	}
	return "unix://" + r.rdb.(*redis.Client).Options().Addr
}
