package acl_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/acl"
	"sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSelectorsAreTakenAway: a user that could do everything by a selector before can't once it has a role.
func TestSelectorsAreTakenAway(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	admin := testkit.Client(t, server.URL())
	run := func(rdb redis.UniversalClient, words ...string) error {
		var command []any
		for _, word := range words {
			command = append(command, word)
		}
		return rdb.Do(t.Context(), command...).Err()
	}
	for _, role := range acl.Roles {
		user := "shop-" + string(role)
		if err := run(admin, "ACL", "SETUSER", user, "on", ">word", "(~* &* +@all)"); err != nil {
			t.Fatal(err)
		}
		rdb := testkit.Client(t, strings.Replace(server.URL(), "unix://", "unix://"+user+":word@", 1))
		if err := run(rdb, "FLUSHALL"); err != nil {
			t.Fatalf("%s by its selector: %v", role, err)
		}
		if err := run(admin, strings.Fields(acl.Line(role, user, false, false))...); err != nil {
			t.Fatal(err)
		}
		if err := run(rdb, "FLUSHALL"); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%s: FLUSHALL: got %v, want it refused", role, err)
		}
		if err := run(rdb, "PING"); err != nil {
			t.Errorf("%s: PING: %v", role, err)
		}
	}
}
