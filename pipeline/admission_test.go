package pipeline_test

import "testing"

func TestRig(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admit("a", 2)
	r.admitMany("b", 10)
	t.Log(r.dump(r.sale), r.count("sluice_admissions_total"))
	r.persist(r.events(r.sale)...)
	if r.rows(r.sale.ID) != 11 {
		t.Fatal()
	}
}
