package demo

import (
	"slices"
	"testing"
)

func TestTakeoverIsChecked(t *testing.T) {
	t.Parallel()
	good := WorkerKill{InHand: 3, Takeovers: []Takeover{{Worker: "worker-2", Orders: 3}}, PersistedMS: 5000}
	if c := good.takenOver(); !c.OK {
		t.Errorf("a good takeover fails: %s", c.Detail)
	}
	for name, spoil := range map[string]func(k *WorkerKill){
		"nothing in hand":    func(k *WorkerKill) { k.InHand = 0 },
		"not all taken over": func(k *WorkerKill) { k.Takeovers[0].Orders = 2 },
		"nobody took over":   func(k *WorkerKill) { k.Takeovers = nil },
		"never persisted":    func(k *WorkerKill) { k.PersistedMS = 0 },
	} {
		bad := good
		bad.Takeovers = slices.Clone(good.Takeovers)
		spoil(&bad)
		if c := bad.takenOver(); c.OK {
			t.Errorf("%s: it passes: %s", name, c.Detail)
		}
	}
	if c := (*WorkerKill)(nil).takenOver(); c.OK {
		t.Error("no kill at all passes")
	}
}
