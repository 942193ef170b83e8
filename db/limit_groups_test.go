package db_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/pipeline"
)

// The sales of a limit group have one limit and are on the same partitions, whatever the installation places new sales
// by; and they are bounded.
func TestLimitGroups(t *testing.T) {
	f := setup(t)
	create := func(n, limit int, partitions ...pipeline.Partition) (pipeline.Sale, error) {
		s := pipeline.Sale{
			ID: fmt.Sprint("lamp-", n), Title: "Lamp", Total: 5, MaxQuantity: 1, OpensAt: time.Unix(1, 0),
			ClosesAt: time.Unix(1e9, 0), Partitions: partitions, LimitGroup: "lamps", GroupLimit: limit,
		}
		return s, f.store.CreateSale(f.ctx(), &s)
	}
	first, err := create(1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	second, err := create(2, 2, 7)
	if err != nil || !slices.Equal(second.Partitions, first.Partitions) || second.GroupLimit != 2 {
		t.Errorf("the second sale: got %+v, %v, want it beside the first", second, err)
	}
	_, err = create(3, 1, 3)
	wantKind(t, err, pipeline.KindConflict)
	for n := 4; n <= 33; n++ {
		if _, err := create(n, 2, 3); err != nil {
			t.Fatal(err)
		}
	}
	_, err = create(34, 2, 3)
	wantKind(t, err, pipeline.KindConflict)
	var made sync.WaitGroup
	for n, limit := range []int{1, 2} { // at once: what the first one says holds
		made.Go(func() {
			s := pipeline.Sale{
				ID: fmt.Sprint("race-", n), Title: "Lamp", Total: 5, MaxQuantity: 1, OpensAt: time.Unix(1, 0),
				ClosesAt: time.Unix(1e9, 0), Partitions: []pipeline.Partition{pipeline.Partition(n)}, LimitGroup: "race",
				GroupLimit: limit,
			}
			if err := f.store.CreateSale(t.Context(), &s); err != nil && pipeline.KindOf(err) != pipeline.KindConflict {
				t.Error(err)
			}
		})
	}
	made.Wait()
	if got := one[int](f, `select count(*) from sales where limit_group = 'race'`); got != 1 {
		t.Errorf("%d sales of one group have different limits", got)
	}
	_, err = create(35, 0, 3)
	wantKind(t, err, pipeline.KindInvalid)
}
