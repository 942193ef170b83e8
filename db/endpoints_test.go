package db_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/webhook"
)

// sealed is what is stored as a secret, here.
func sealed(int64) string { return webhook.NewSecret() }

// endpoint registers a receiver; this package sends nothing.
func (f *fixture) endpoint(types ...string) webhook.Endpoint {
	f.Helper()
	url := fmt.Sprintf("https://example.com/%d", lastNumber.Add(1))
	e, err := f.store.EndpointRegistry().AddEndpoint(f.ctx(), "test", url, sealed, types)
	if err != nil {
		f.Fatal(err)
	}
	return e
}

// A claim keeps others away until its lease ends, and a claim that is lost changes nothing any more.
func TestClaims(t *testing.T) {
	f := setup(t)
	e := f.endpoint()
	claim := func(lease time.Duration) []webhook.Claim {
		t.Helper()
		claims, err := f.store.ClaimEndpoints(f.ctx(), 5, lease)
		if err != nil {
			t.Fatal(err)
		}
		return claims
	}
	if got := claim(time.Hour); len(got) != 0 {
		t.Fatalf("claimed %d endpoints without events", len(got))
	}
	f.exec(`insert into outbox (type, sale_id, data) select 't', 'drop', '{}' from generate_series(1, 5)`)
	if got := claim(time.Hour); len(got) != 0 {
		t.Fatal("claimed for an event without position")
	}
	f.sequence()
	first := claim(time.Hour)
	if len(first) != 1 || first[0].ID != e.ID || first[0].Secret != e.Secret || first[0].URL != e.URL ||
		first[0].Cursor != 0 {
		t.Fatalf("claims: %+v", first)
	}
	if got := claim(time.Hour); len(got) != 0 {
		t.Fatal("claimed twice")
	}
	advance := func(c *webhook.Claim, p webhook.Progress, want bool) {
		t.Helper()
		if kept, err := f.store.AdvanceEndpoint(f.ctx(), c, p); err != nil || kept != want {
			t.Errorf("advance to %d: got %t, %v, want %t", p.Cursor, kept, err, want)
		}
	}
	advance(&first[0], webhook.Progress{Cursor: 2, Delivered: true, Lease: time.Hour}, true)
	f.exec(`update endpoints set leased_until = now()`) // as if the hour were over
	second := claim(time.Hour)
	if len(second) != 1 || second[0].Cursor != 2 {
		t.Fatalf("claims after the lease: %+v", second)
	}
	advance(&first[0], webhook.Progress{Cursor: 5, Delivered: true, Lease: time.Hour}, false)
	gone := webhook.Failure{Error: "x", Gone: true, Attempts: 1}
	if reason, err := f.store.FailEndpoint(f.ctx(), &first[0], webhook.Progress{Cursor: 5}, gone); err != nil ||
		reason != "" {
		t.Errorf("a lost claim failed: %q, %v", reason, err)
	}
	advance(&second[0], webhook.Progress{Cursor: 1, Delivered: true, Lease: time.Hour}, true) // never back
	if _, err := f.store.EndpointRegistry().DisableEndpoint(f.ctx(), "ann", e.ID); err != nil {
		t.Fatal(err)
	}
	advance(&second[0], webhook.Progress{Cursor: 3, Delivered: true, Lease: time.Hour}, false) // recorded, and over
	advance(&second[0], webhook.Progress{Cursor: 3}, false)
	if got := claim(time.Hour); len(got) != 0 {
		t.Fatal("claimed a disabled endpoint")
	}
	if _, err := f.store.EndpointRegistry().EnableEndpoint(f.ctx(), "ann", e.ID, true); err != nil {
		t.Fatal(err)
	}
	third := claim(time.Hour)
	if len(third) != 1 || third[0].Cursor != 4 {
		t.Fatalf("enabled after the next event: %+v", third)
	}
	advance(&third[0], webhook.Progress{Cursor: 5}, true)
	if got := claim(time.Hour); len(got) != 0 {
		t.Fatal("claimed with nothing left")
	}
	got := one[string](f, `select string_agg(actor || ' ' || action, ', ' order by id) from audit_log`)
	if want := "test add-endpoint, ann disable-endpoint, ann enable-endpoint"; got != want {
		t.Errorf("audit log: got %s, want %s", got, want)
	}
}

func TestEndpoints(t *testing.T) {
	f := setup(t)
	first := f.endpoint(webhook.TypeOrderPaid)
	_, err := f.store.EndpointRegistry().AddEndpoint(f.ctx(), "ann", first.URL, sealed, nil)
	wantKind(t, err, pipeline.KindConflict)
	var racers sync.WaitGroup
	for i := range webhook.MaxEndpoints + 5 {
		racers.Go(func() {
			url := fmt.Sprint("https://example.com/race/", i)
			_, err := f.store.EndpointRegistry().AddEndpoint(t.Context(), "ann", url, sealed, nil)
			if err != nil && pipeline.KindOf(err) != pipeline.KindConflict {
				t.Errorf("add: %v", err)
			}
		})
	}
	racers.Wait()
	list, err := f.store.Endpoints(f.ctx())
	if err != nil || len(list) != webhook.MaxEndpoints {
		t.Fatalf("%d endpoints, %v, want %d", len(list), err, webhook.MaxEndpoints)
	}
	if e := list[0]; e.ID != first.ID || e.Secret != "" || !slices.Equal(e.Types, first.Types) || e.Disabled() {
		t.Errorf("listed: %+v", e)
	}
	for range 2 {
		e, err := f.store.EndpointRegistry().DisableEndpoint(f.ctx(), "bob", first.ID)
		if err != nil || !e.Disabled() || e.DisabledReason != "by bob" || e.Secret != "" {
			t.Errorf("disabled: %+v, %v", e, err)
		}
	}
	for range 2 {
		if e, err := f.store.EndpointRegistry().EnableEndpoint(f.ctx(), "bob", first.ID, false); err != nil || e.Disabled() ||
			e.DisabledReason != "" {
			t.Errorf("enabled: %+v, %v", e, err)
		}
	}
	if err := f.store.EndpointRegistry().RemoveEndpoint(f.ctx(), "bob", first.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, f.store.EndpointRegistry().RemoveEndpoint(f.ctx(), "bob", first.ID), pipeline.KindNotFound)
	_, err = f.store.Endpoint(f.ctx(), first.ID)
	wantKind(t, err, pipeline.KindNotFound)
	_, err = f.store.EndpointRegistry().EnableEndpoint(f.ctx(), "bob", first.ID, false)
	wantKind(t, err, pipeline.KindNotFound)
	got := one[string](f, `select string_agg(action, ' ' order by id) from audit_log where actor = 'bob'`)
	if want := "disable-endpoint enable-endpoint remove-endpoint"; got != want {
		t.Errorf("audit log: got %s, want %s", got, want)
	}
	if got := one[int](f, `select count(*) from audit_log where detail::text like '%whsec%'`); got != 0 {
		t.Error("a secret is in the audit log")
	}
}
