package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/db"
	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/operator"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const bootstrap = "0123456789abcdef0123456789abcdef"

// rig is a Postgres that can go away, and a clock that can be set.
type rig struct {
	*testing.T
	proxy *faultnet.Proxy
	store *db.Store
	ahead time.Duration // of the clock of the keyrings
}

func newRig(t *testing.T) *rig {
	t.Helper()
	proxy, err := faultnet.Listen(testkit.Database(t))
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	store, err := db.Open(t.Context(), proxy.URL(), db.Options{})
	must(t, err)
	t.Cleanup(store.Close)
	return &rig{T: t, proxy: proxy, store: store}
}

// keyring is that of an api.
func (r *rig) keyring() *operator.Keyring {
	k := operator.NewKeyring(r.store.OperatorTokens(), bootstrap)
	k.SetClock(func() time.Time { return time.Now().Add(r.ahead) })
	return k
}

// add makes a token.
func (r *rig) add(name string, role operator.Role, life time.Duration) (operator.Token, string) {
	r.Helper()
	token, text, err := operator.New(name, role, time.Now().Add(life), "cli:test")
	must(r, err)
	added, err := r.store.OperatorTokens().Add(r.Context(), token)
	must(r, err)
	return added, text
}

// want identifies a text, and compares the error.
func (r *rig) want(k *operator.Keyring, text string, want error) operator.Identity {
	r.Helper()
	who, err := k.Identify(r.Context(), text)
	if !errors.Is(err, want) || want == nil && err != nil {
		r.Errorf("got %v, %v; want %v", who, err, want)
	}
	if err != nil && who != (operator.Identity{}) {
		r.Errorf("got %v beside the error %v", who, err)
	}
	return who
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRevocationTakesEffectInTime: on every api, a token that is revoked is refused once what is known of it is as old
// as Freshness, and stays refused while Postgres is away.
func TestRevocationTakesEffectInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token, text := r.add("ann", operator.Operate, time.Hour)
	apis := []*operator.Keyring{r.keyring(), r.keyring()}
	for _, k := range apis {
		who := r.want(k, text, nil)
		if who.Actor() != "token:ann" || who.Role != operator.Operate || who.TokenID != token.ID {
			t.Errorf("got %+v", who)
		}
	}
	_, changed, err := r.store.OperatorTokens().Revoke(t.Context(), token.ID, "cli:eve")
	if err != nil || !changed {
		t.Fatalf("revoke: got %t, %v", changed, err)
	}
	r.ahead = operator.Freshness
	for _, k := range apis {
		r.want(k, text, operator.ErrRevoked)
	}
	r.proxy.Cut()
	r.ahead += operator.Freshness
	for _, k := range apis {
		r.want(k, text, operator.ErrRevoked)
	}
}

// TestAnOlderAnswerIsNotRemembered: what Postgres said before a revocation is not believed after it, although the
// request that asked comes last.
func TestAnOlderAnswerIsNotRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token, text := r.add("ann", operator.Operate, time.Hour)
	k := r.keyring()
	must(t, k.Overtaken(t.Context(), token.ID, func() {
		_, _, err := r.store.OperatorTokens().Revoke(t.Context(), token.ID, "cli:eve")
		must(t, err)
		r.want(k, text, operator.ErrRevoked)
	}))
	r.want(k, text, operator.ErrRevoked)
}

// TestExpiryTakesEffectAtOnce: by Postgres' clock, also where the token is known.
func TestExpiryTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const life = operator.Staleness / 2
	_, text := r.add("ann", operator.Read, life)
	k := r.keyring()
	r.want(k, text, nil)
	r.proxy.Cut() // so that nothing but the expiry ends it
	r.ahead = life / 2
	r.want(k, text, nil)
	r.ahead = life + time.Second
	r.want(k, text, operator.ErrExpired)
}

// TestPostgresAway: what Postgres said last is believed for Staleness, and nothing is believed of tokens that it was
// not asked about. The token that is a setting needs no Postgres.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, known := r.add("ann", operator.Read, 100*time.Hour)
	_, unknown := r.add("bob", operator.Read, 100*time.Hour)
	k := r.keyring()
	r.want(k, known, nil)
	r.proxy.Cut()
	r.ahead = operator.Staleness - time.Second
	r.want(k, known, nil)
	if _, err := k.Identify(t.Context(), unknown); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("got %v, want that Postgres is away", err)
	}
	r.ahead = operator.Staleness + time.Second
	if _, err := k.Identify(t.Context(), known); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("got %v, want that Postgres is away", err)
	}
	if who := r.want(k, bootstrap, nil); who.Actor() != "bootstrap" || who.Role != operator.Admin {
		t.Errorf("got %+v", who)
	}
	r.proxy.Heal()
	testkit.Eventually(t, time.Minute, "Postgres to be back", func() bool {
		_, err := k.Identify(context.WithoutCancel(t.Context()), unknown)
		return err == nil
	})
}

// TestGuesses: nothing but the whole text is taken, and guesses are not remembered.
func TestGuesses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token, text := r.add("ann", operator.Read, time.Hour)
	k := r.keyring()
	other := strings.Map(func(c rune) rune {
		if c == 'a' {
			return 'b'
		}
		return 'a'
	}, text[len(text)-52:])
	for _, guess := range []string{
		"", "a", text + "a", text[:len(text)-1], "sluice_" + token.ID + "_" + other, strings.ToUpper(text),
		strings.Replace(text, token.ID, "aaaaaaaaaaaaaaaa", 1), "sluice_" + token.ID, bootstrap[1:], bootstrap + "0",
		"sluice_" + token.ID + "_" + strings.Repeat("\x00", 52),
	} {
		r.want(k, guess, operator.ErrUnknown)
	}
	if k.Kept() != 0 {
		t.Errorf("%d guesses are remembered", k.Kept())
	}
	r.want(k, text, nil)
	r.want(operator.NewKeyring(r.store.OperatorTokens(), ""), "", operator.ErrUnknown)
}
