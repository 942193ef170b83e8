package chaos

import "testing"

// TestTheLastFaultEndsIt: a connection that two faults have frozen thaws when the second of them is over.
func TestTheLastFaultEndsIt(t *testing.T) {
	t.Parallel()
	l := &link{}
	var begun, ended int
	begin := func() { l.count(&l.frozen, 1, func() { begun++ }) }
	end := func() { l.count(&l.frozen, -1, func() { ended++ }) }
	begin()
	begin()
	end()
	if begun != 1 || ended != 0 {
		t.Fatalf("with one of two faults over it began %d times and ended %d times, want 1 and 0", begun, ended)
	}
	end()
	if ended != 1 {
		t.Fatalf("with both over it ended %d times, want 1", ended)
	}
	begin()
	if begun != 2 {
		t.Errorf("a later fault began %d times in all, want 2", begun)
	}
}
