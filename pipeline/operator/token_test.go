package operator_test

import (
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/operator"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	for i, has := range operator.Roles {
		for j, needed := range operator.Roles {
			if got := has.Allows(needed); got != (i >= j) {
				t.Errorf("%s allows %s: got %t", has, needed, got)
			}
		}
		if has.Allows("") || has.Allows("root") || operator.Role("root").Allows(has) || operator.Role("").Allows(has) {
			t.Errorf("%s: a role that does not exist counts", has)
		}
	}
	if _, err := operator.ParseRole("root"); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("got %v", err)
	}
}

// TestNewTokens: each is another, and no name looks like another kind of actor.
func TestNewTokens(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		token, text, err := operator.New("ann", operator.Read, time.Now(), "cli:eve")
		must(t, err)
		if seen[token.ID] || seen[text] || !strings.HasPrefix(text, "sluice_"+token.ID+"_") || len(text) != 7+16+1+52 {
			t.Fatalf("got %q with the id %q", text, token.ID)
		}
		seen[token.ID], seen[text] = true, true
	}
	for _, name := range []string{"", "Ann", "cli:ann", "a b", "-a", strings.Repeat("a", 65), "a\n", "ä"} {
		if _, _, err := operator.New(name, operator.Read, time.Now(), ""); pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if _, _, err := operator.New("ann", "root", time.Now(), ""); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("an unknown role: got %v", err)
	}
}

func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	for token, fine := range map[string]bool{
		"": true, bootstrap: true, "a": false, "public-dev-token": false, strings.Repeat("a", 64): false,
		bootstrap[1:]: false, bootstrap + " ": false, bootstrap + "ä": false, strings.Repeat("abc123", 8): false,
	} {
		err := operator.ValidateBootstrap(token)
		if (err == nil) != fine || err != nil && len(token) > 1 && strings.Contains(err.Error(), token) {
			t.Errorf("%q: got %v", token, err)
		}
	}
}
