package db_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/idempotency"
)

func (f *fixture) claim(key, body string) (idempotency.Claim, *idempotency.Answer, error) {
	f.Helper()
	return f.store.ClaimRequest(f.ctx(), idempotency.NewRequest(key, "test", body))
}

func (f *fixture) mustClaim(key string) idempotency.Claim {
	f.Helper()
	claim, known, err := f.claim(key, "")
	if err != nil || known != nil {
		f.Fatalf("claim: got %+v, %v", known, err)
	}
	return claim
}

// lapse is the time after which another try may take over.
func (f *fixture) lapse() {
	f.Helper()
	f.exec(`update operator_requests set leased_until = now() - interval '1s' where leased_until is not null`)
}

func (f *fixture) restock(c idempotency.Claim) error {
	f.Helper()
	_, err := f.store.ChangeSale(idempotency.With(f.ctx(), c), "drop", "ann", pipeline.SaleChange{AddStock: 5})
	return err
}

func (f *fixture) total() int64 {
	f.Helper()
	return one[int64](f, `select total from sales where id = 'drop'`)
}

// TestTheLifeOfAKey: claimed, in use, answered, and everybody else's.
func TestTheLifeOfAKey(t *testing.T) {
	f := setup(t)
	claim := f.mustClaim("k")
	if _, _, err := f.claim("k", ""); !errors.Is(err, idempotency.ErrInUse) {
		t.Errorf("at once: got %v, want ErrInUse", err)
	}
	if _, _, err := f.claim("k", "other"); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("for something else: got %v, want ErrReused", err)
	}
	if err := f.store.ReleaseRequest(f.ctx(), claim, false); err != nil {
		t.Fatal(err)
	}
	again := f.mustClaim("k")
	if again.ID != claim.ID || again.Lease == claim.Lease || again.Line != 0 {
		t.Errorf("after a failure: got %+v, want another try of %+v", again, claim)
	}
	late := idempotency.Answer{Status: 500, Body: []byte("late")}
	if err := f.store.AnswerRequest(f.ctx(), claim, late); err != nil { // by a try that was overtaken
		t.Fatal(err)
	}
	want := idempotency.Answer{Status: 201, Header: map[string]string{"Location": "/x"}, Body: []byte("\x00body")}
	if err := f.store.AnswerRequest(f.ctx(), again, want); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, got, err := f.claim("k", "")
		if err != nil || got == nil || got.Status != 201 || string(got.Body) != "\x00body" || got.Header["Location"] != "/x" {
			t.Fatalf("answered: got %+v, %v, want %+v", got, err, want)
		}
	}
	if _, _, err := f.claim("k", "other"); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("answered, for something else: got %v, want ErrReused", err)
	}
	free := f.mustClaim("free")
	if err := f.store.ReleaseRequest(f.ctx(), free, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.claim("free", "other"); err != nil {
		t.Errorf("a key that was left free: got %v", err)
	}
}

// TestATryThatWasOvertakenChangesNothing: of two tries of one request, in whatever order they come, one makes a change.
func TestATryThatWasOvertakenChangesNothing(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	slow := f.mustClaim("k")
	f.lapse()
	next := f.mustClaim("k")
	wantKind(t, f.restock(slow), pipeline.KindUnavailable)
	if got := f.total(); got != 10 {
		t.Fatalf("the one that was overtaken: the total is %d, want 10", got)
	}
	if err := f.restock(next); err != nil || f.total() != 15 {
		t.Fatalf("the other: got %v and a total of %d, want 15", err, f.total())
	}
	f.lapse() // it died before it could keep its answer
	last := f.mustClaim("k")
	if last.Line == 0 {
		t.Fatal("the last try does not know what was done")
	}
	for range 2 {
		if err := f.restock(last); err != nil || f.total() != 15 {
			t.Errorf("the last: got %v and a total of %d, want 15", err, f.total())
		}
	}
	if err := f.store.ReleaseRequest(f.ctx(), last, true); err != nil { // what was done is not forgotten
		t.Fatal(err)
	}
	if n := one[int](f, `select count(*) from operator_requests`); n != 1 {
		t.Errorf("%d requests are known, want 1", n)
	}
}

// TestATakeOverWaitsForTheChange: a try that takes over while the change of the one before is being committed sees it.
func TestATakeOverWaitsForTheChange(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	first := f.mustClaim("k")
	f.lapse()
	conn, err := pgx.Connect(f.ctx(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(f.ctx()) }()
	tx, err := conn.Begin(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	const name = `select set_config('sluice.request', $1::bigint::text || ' ' || $2::text, true)`
	if _, err := tx.Exec(f.ctx(), name, first.ID, first.Lease); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(f.ctx(), `insert into audit_log (actor, action) values ('ann', 'test')`); err != nil {
		t.Fatal(err)
	}
	type taken struct {
		claim idempotency.Claim
		err   error
	}
	took := make(chan taken, 1)
	go func() {
		claim, _, err := f.claim("k", "")
		took <- taken{claim, err}
	}()
	waiting := `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
	for one[int](f, waiting) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if err := tx.Commit(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := <-took; got.err != nil || got.claim.Line == 0 {
		t.Errorf("got %+v, %v, want a try that knows what was done", got.claim, got.err)
	}
	if left := one[string](f, `select coalesce(current_setting('sluice.request', true), '')`); left != "" {
		t.Errorf("a connection still names the request %q", left)
	}
}

// TestKeysAreDropped once they were kept for long enough, and not before; there is room for so many.
func TestKeysAreDropped(t *testing.T) {
	f := setup(t)
	f.exec(`
		insert into operator_requests (key_hash, request_hash, begun_at)
		select encode(sha256(i::text::bytea), 'hex'), repeat('0', 64), now() - i * interval '1 hour'
		from generate_series(1, 60) i`)
	dropped, err := f.store.PruneRequests(f.ctx(), 5)
	if err != nil || dropped != 5 {
		t.Errorf("got %d, %v, want 5", dropped, err)
	}
	if dropped, err = f.store.PruneRequests(f.ctx(), 100); err != nil || dropped != 60-47-5 {
		t.Errorf("got %d, %v, want %d", dropped, err, 60-47-5)
	}
	const age = `select extract(epoch from now() - min(begun_at)) / 3600 from operator_requests`
	if oldest := one[float64](f, age); oldest < 47 || oldest > idempotency.Keep.Hours() {
		t.Errorf("the oldest has %f hours", oldest)
	}
	known := f.mustClaim("known")
	f.exec(`
		insert into operator_requests (key_hash, request_hash)
		select encode(sha256(('more' || i)::bytea), 'hex'), repeat('0', 64) from generate_series(1, $1::integer) i`,
		idempotency.MaxKept)
	if _, _, err := f.claim("one more", ""); pipeline.KindOf(err) != pipeline.KindUnavailable ||
		errors.Is(err, idempotency.ErrInUse) || !strings.Contains(err.Error(), "100000") {
		t.Errorf("one too many: got %v", err)
	}
	if err := f.store.ReleaseRequest(f.ctx(), known, false); err != nil {
		t.Fatal(err)
	}
	if again := f.mustClaim("known"); again.ID != known.ID {
		t.Errorf("a known key: got %+v, want %+v", again, known)
	}
}
