package lock

import (
	"slices"
	"testing"
)

// What can't be an answer to try_many must not pass for "all are ours".
func TestHeldReply(t *testing.T) {
	for _, reply := range []any{
		nil, int64(0), "OK",
		[]any{nil},
		[]any{"1"},
		[]any{int64(0)},
		[]any{int64(4)},
		[]any{int64(2), int64(2)},
	} {
		if held, err := heldReply(reply, 3); err == nil {
			t.Errorf("%#v: got %v, want an error", reply, held)
		}
	}
	for _, test := range []struct {
		reply []any
		held  []bool
	}{
		{[]any{}, []bool{true, true, true}},
		{[]any{int64(2)}, []bool{true, false, true}},
		{[]any{int64(1), int64(2), int64(3)}, []bool{false, false, false}},
	} {
		if held, err := heldReply(test.reply, 3); err != nil || !slices.Equal(held, test.held) {
			t.Errorf("%v: got %v, %v, want %v", test.reply, held, err, test.held)
		}
	}
}
