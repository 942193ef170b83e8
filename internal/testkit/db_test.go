//go:build !nodb

package testkit_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
)

func TestY(t *testing.T) {
	for range 5 {
		t0 := time.Now()
		u := testkit.Database(t)
		t.Log(time.Since(t0), u)
	}
}
