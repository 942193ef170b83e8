package db_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	const url = "postgres:///nowhere"
	for name, try := range map[string]struct {
		url  string
		opts db.Options
	}{
		"url":                   {"postgres://u:secret@h:x/db", db.Options{}},
		"too many connections":  {url, db.Options{MaxConns: 101}},
		"negative connections":  {url, db.Options{MaxConns: -1}},
		"lock over statement":   {url, db.Options{LockTimeout: time.Second, StatementTimeout: time.Second}},
		"negative lock timeout": {url, db.Options{LockTimeout: -1}},
		"negative idle timeout": {url, db.Options{IdleTimeout: -1}},
	} {
		_, err := db.Open(t.Context(), try.url, try.opts)
		if pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%s: got %v, want a KindInvalid error", name, err)
			continue
		}
		wantSecretless(t, err)
	}
}

func wantSecretless(t *testing.T, err error) {
	t.Helper()
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the password: %v", err)
	}
}

func TestSessionSettings(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	store, err := db.Open(t.Context(), url, db.Options{
		ApplicationName: "here", StatementTimeout: time.Minute, LockTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	f := open(t, url, db.Options{})
	f.sale("drop", 5)
	if err := store.Ping(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := one[int64](f, `select count(*) from pg_stat_activity where application_name = 'here'`); got == 0 {
		t.Error("no session with the application's name")
	}

	// A lock that another session holds: the lock timeout ends the call, long before the context does.
	f.lockSales()
	before := f.state()
	_, err = store.PersistOrders(f.ctx(), 1, events("drop", 1))
	wantKind(t, err, pipeline.KindUnavailable)
	if !strings.Contains(err.Error(), "55P03") {
		t.Errorf("got %v, want lock_not_available (55P03)", err)
	}
	if after := f.state(); after != before {
		t.Errorf("something was written:\n%s\nbefore:\n%s", after, before)
	}
}

func TestURLSettingsWin(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	store, err := db.Open(t.Context(), withParam(url, "application_name=from-url"), db.Options{ApplicationName: "opts"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	f := open(t, url, db.Options{})
	if err := store.Ping(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := one[int64](f, `select count(*) from pg_stat_activity where application_name = 'from-url'`); got == 0 {
		t.Error("the name given in the url is not used")
	}
}

func withParam(url, param string) string {
	if strings.Contains(url, "?") {
		return url + "&" + param
	}
	return url + "?" + param
}

// No server: each call fails at once, with a kind that may be retried.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	url := "postgres://sluice@/sluice?host=" + filepath.Join(t.TempDir(), "none")
	store, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx := t.Context()
	calls := map[string]error{
		"ping":    store.Ping(ctx),
		"schema":  store.CheckSchema(ctx),
		"create":  store.CreateSale(ctx, newSale("drop", 1)),
		"loaded":  store.MarkLoaded(ctx, "drop"),
		"migrate": db.Migrate(ctx, url),
	}
	_, calls["version"] = db.Version(ctx, url)
	_, calls["sale"] = store.Sale(ctx, "drop")
	_, calls["sales"] = store.Sales(ctx, pipeline.SalesFilter{})
	_, calls["change"] = store.ChangeSale(ctx, "drop", "me", pipeline.SaleChange{AddStock: 1})
	_, calls["partitions"] = store.EnsurePartitions(ctx, 16)
	_, calls["persist"] = store.PersistOrders(ctx, 1, events("drop", 3))
	_, calls["order"] = store.Order(ctx, "drop", "0191d7c6-0000-7000-8000-000000000000")
	_, calls["latest"] = store.LatestOrder(ctx, "drop", "u")
	_, calls["ledger"] = store.Ledger(ctx, "drop", nil, nil, nil, nil)
	calls["bury"] = store.BuryEvent(ctx, deadletter.Message{Reason: "undecodable"}, nil)
	_, calls["letters"] = store.Letters(ctx, deadletter.Filter{})
	_, calls["letter"] = store.Letter(ctx, 1)
	_, _, calls["begin a replay"] = store.BeginReplay(ctx, 1, uuid.NewString(), deadletter.ReplayAs{})
	calls["end a replay"] = store.EndReplay(ctx, 1)
	_, calls["resolve"] = store.ResolveLetter(ctx, 1, deadletter.LetterResolution{
		Resolution: deadletter.Discarded,
		Actor:      "me",
	})
	_, calls["releases of an order"] = store.OrderReleases(ctx, "drop", uuid.NewString())
	for name, err := range calls {
		if got := pipeline.KindOf(err); got != pipeline.KindUnavailable {
			t.Errorf("%s: got %v, want a KindUnavailable error", name, err)
		}
	}
}

// A cancelled caller gets its own reason back, inside the pipeline's error.
func TestCancelledCall(t *testing.T) {
	f := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.store.PersistOrders(ctx, 1, events("drop", 1))
	wantKind(t, err, pipeline.KindUnavailable)
	if !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v, want context.Canceled inside", err)
	}
}
