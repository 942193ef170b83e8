package distribution_test

import (
	"strings"
	"testing"

	"sluice/db/distribution"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A Postgres without Citus is refused before anything is changed, with what to do.
func TestAPlainPostgresIsRefused(t *testing.T) {
	postgres := testkit.PrivatePostgres(t)
	_, err := distribution.Apply(t.Context(), postgres.URL())
	if pipeline.KindOf(err) != pipeline.KindInvalid || !strings.Contains(err.Error(), "create extension citus") {
		t.Errorf("got %v, want a refusal that says how to install Citus", err)
	}
}
