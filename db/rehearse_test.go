package db_test

import (
	"net/url"
	"testing"

	"sluice/db"
	"sluice/pipeline"
)

// TestRehearsalNeedsTheRights: what a worker may not do is found before it has an order to persist, and nothing
// changes.
func TestRehearsalNeedsTheRights(t *testing.T) {
	f := setup(t)
	f.sale("drop-1", 5)
	before := f.state()
	if err := f.store.Rehearse(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := f.state(); got != before {
		t.Errorf("the rehearsal changed\n%s\nto\n%s", before, got)
	}
	u, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("default_transaction_read_only", "on")
	u.RawQuery = query.Encode()
	readOnly, err := db.Open(f.ctx(), u.String(), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(readOnly.Close)
	if err := readOnly.Ping(f.ctx()); err != nil {
		t.Fatal(err)
	}
	wantKind(t, readOnly.Rehearse(f.ctx()), pipeline.KindUnavailable)
}
