package testkit_test

import (
	"testing"

	"sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
func TestX(t *testing.T) {
	c := testkit.Redis(t)
	p := testkit.Prefix(t)
	if err := c.Set(t.Context(), p+":a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	t.Log(p)
	r := testkit.PrivateRedis(t, "maxmemory 5mb")
	t.Log(testkit.Client(t, r.URL()).ConfigGet(t.Context(), "maxm*"))
}
