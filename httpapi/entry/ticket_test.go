package entry_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/httpapi/entry"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keyOf is a key whose secret is one byte, again and again.
func keyOf(id string, b byte) entry.Key {
	return entry.Key{ID: id, Secret: bytes.Repeat([]byte{b}, 32)}
}

func ringOf(t testing.TB, keys ...entry.Key) *entry.Ring {
	t.Helper()
	ring, err := entry.NewRing(keys...)
	must(t, err)
	return ring
}

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func sign(t testing.TB, ring *entry.Ring, ticket entry.Ticket, sale, user string) string {
	t.Helper()
	text, err := ring.Sign(ticket, sale, user)
	must(t, err)
	return text
}

// A ticket says what was signed, and is good for exactly one buyer and one sale.
func TestATicketIsOfOneBuyerAndOneSale(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyOf("k1", 1))
	ticket := entry.Ticket{GivenAt: noon, Turn: 0xdeadbeef}
	text := sign(t, ring, ticket, "drop-1", "ann")
	if got, err := ring.Verify(text, "drop-1", "ann", noon.Add(time.Hour)); err != nil || got != ticket {
		t.Fatalf("got %+v, %v; want %+v", got, err, ticket)
	}
	for _, other := range [][2]string{
		{"drop-1", "bob"},
		{"drop-1", "Ann"},
		{"drop-1", ""},
		{"drop-1", "ann "},
		{"drop-2", "ann"},
		{"", "drop-1ann"},
		{"drop-1a", "nn"},
		{"drop-", "1ann"},
		{"ann", "drop-1"},
	} {
		if _, err := ring.Verify(text, other[0], other[1], noon); !errors.Is(err, entry.Forged) {
			t.Errorf("as %q of sale %q: got %v, want forged", other[1], other[0], err)
		}
	}
}

// Of the texts that differ from a ticket in anything, none is one.
func TestForgedTickets(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyOf("one", 1), keyOf("two", 2))
	text := sign(t, ring, entry.Ticket{GivenAt: noon, Turn: 7}, "drop-1", "ann")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	must(t, err)
	forged := map[string]string{
		"nothing": "", "a word": "ticket", "padded": text + "==", "a line break": text[:9] + "\n" + text[9:],
		"line breaks": text + "\r\n", "a space": " " + text, "twice": text + text, "two": text + "," + text,
		"standard alphabet": "+" + text[1:], "very long": strings.Repeat("A", 1<<20),
		"same key id, another secret": sign(t, ringOf(t, keyOf("one", 9)), entry.Ticket{GivenAt: noon, Turn: 7}, "drop-1",
			"ann"),
		"a key that is unknown": sign(t, ringOf(t, keyOf("ten", 1)), entry.Ticket{GivenAt: noon, Turn: 7}, "drop-1", "ann"),
	}
	for i := range text {
		forged[fmt.Sprintf("cut to %d", i)] = text[:i]
		changed := []byte(text)
		changed[i] = "AB"[(text[i]&1+1)%2]
		if changed[i] == text[i] {
			changed[i] = 'x'
		}
		forged[fmt.Sprintf("character %d", i)] = string(changed)
	}
	for i := range raw { // version, id and its length, time, turn and code, bit by bit
		for bit := range 8 {
			changed := bytes.Clone(raw)
			changed[i] ^= 1 << bit
			forged[fmt.Sprintf("byte %d bit %d", i, bit)] = base64.RawURLEncoding.EncodeToString(changed)
		}
		forged[fmt.Sprintf("without byte %d", i)] = base64.RawURLEncoding.EncodeToString(
			append(bytes.Clone(raw[:i]), raw[i+1:]...))
	}
	// The last of its 66 characters has four bits more than the bytes: of those that decode to them, one is the ticket.
	if len(text) != 66 {
		t.Fatalf("the ticket has %d characters", len(text))
	}
	for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if other := text[:len(text)-1] + string(last); other != text {
			forged["last character "+string(last)] = other
		}
	}
	for name, one := range forged {
		if got, err := ring.Verify(one, "drop-1", "ann", noon); err == nil {
			t.Errorf("%s: taken as %+v", name, got)
		} else if _, flaw := errors.AsType[entry.Flaw](err); !flaw {
			t.Errorf("%s: got %v, want a flaw", name, err)
		} else if form := strings.HasPrefix(name, "byte 0 ") || strings.HasPrefix(name, "byte 1 "); form && !errors.Is(err, entry.Malformed) {
			t.Errorf("%s, another version or length: got %v, want malformed", name, err)
		}
	}
	if _, err := ring.Verify(text, "drop-1", "ann", noon); err != nil {
		t.Errorf("the ticket itself: %v", err)
	}
}

func TestTicketsExpire(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyOf("k1", 1))
	text := sign(t, ring, entry.Ticket{GivenAt: noon}, "drop-1", "ann")
	for after, want := range map[time.Duration]error{
		0: nil, entry.Life - time.Millisecond: nil, entry.Life: entry.Expired, 100 * entry.Life: entry.Expired,
	} {
		if _, err := ring.Verify(text, "drop-1", "ann", noon.Add(after)); !errors.Is(err, want) {
			t.Errorf("after %s: got %v, want %v", after, err, want)
		}
	}
}

// A rotation in three steps: the new key is added to verify, then signs, then the old one is taken out.
func TestRotation(t *testing.T) {
	t.Parallel()
	former, newer := keyOf("2026-a", 1), keyOf("2026-b", 2)
	ring := ringOf(t, former)
	verify := func(text string) error {
		_, err := ring.Verify(text, "drop-1", "ann", noon)
		return err
	}
	before := sign(t, ring, entry.Ticket{GivenAt: noon}, "drop-1", "ann")
	must(t, ring.Replace([]entry.Key{former, newer}))
	between := sign(t, ring, entry.Ticket{GivenAt: noon}, "drop-1", "ann")
	if between != before {
		t.Error("the second key signs")
	}
	must(t, ring.Replace([]entry.Key{newer, former}))
	after := sign(t, ring, entry.Ticket{GivenAt: noon}, "drop-1", "ann")
	if after == before {
		t.Error("the new key does not sign")
	}
	must(t, verify(before))
	must(t, verify(after))
	must(t, ring.Replace([]entry.Key{newer}))
	if err := verify(before); !errors.Is(err, entry.UnknownKey) {
		t.Errorf("by a key that was taken out: got %v", err)
	}
	must(t, verify(after))

	for name, wrong := range map[string][]entry.Key{
		"a short secret": {{ID: "k", Secret: make([]byte, 31)}}, "a long secret": {{ID: "k", Secret: make([]byte, 65)}},
		"no id": {keyOf("", 1)}, "a long id": {keyOf("abcdefghijklmnopq", 1)}, "capitals": {keyOf("K1", 1)},
		"one id twice": {keyOf("k1", 1), keyOf("k1", 2)},
		"too many": {
			keyOf("a", 1), keyOf("b", 1), keyOf("c", 1), keyOf("d", 1), keyOf("e", 1), keyOf("f", 1), keyOf("g", 1),
			keyOf("h", 1), keyOf("i", 1),
		},
	} {
		if err := ring.Replace(wrong); err == nil {
			t.Errorf("%s: taken", name)
		}
		must(t, verify(after)) // the ring is as it was
	}
	must(t, ring.Replace(nil))
	if _, err := ring.Sign(entry.Ticket{GivenAt: noon}, "drop-1", "ann"); err == nil || !ring.Empty() {
		t.Errorf("without a key: signed, %v", err)
	}
}

// Keys are replaced while others sign and verify: each ticket that is signed verifies as long as its key is there.
func TestRotationWhileOthersVerify(t *testing.T) {
	t.Parallel()
	a, b := keyOf("a", 1), keyOf("b", 2)
	ring := ringOf(t, a, b)
	var running sync.WaitGroup
	for n := range 4 {
		running.Go(func() {
			user := fmt.Sprintf("buyer-%d", n)
			for range 500 {
				text, err := ring.Sign(entry.Ticket{GivenAt: noon}, "drop-1", user)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := ring.Verify(text, "drop-1", user, noon); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 500 {
		keys := []entry.Key{a, b}
		if n%2 == 0 {
			keys = []entry.Key{b, a}
		}
		must(t, ring.Replace(keys))
	}
	running.Wait()
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfe}, 32))
	keys, err := entry.ParseKeys("2026-b:" + secret + ",\n2026-a:" + secret + " ")
	if err != nil || len(keys) != 2 || keys[0].ID != "2026-b" || keys[1].ID != "2026-a" || len(keys[1].Secret) != 32 {
		t.Errorf("got %v, %v", keys, err)
	}
	for _, wrong := range []string{
		"", ",", secret, ":" + secret, "k1:", "k1:" + secret[1:], "k1: " + secret, "k1:" + secret + ",k1:" + secret,
		"k 1:" + secret, "k1=" + secret, "k1:QUJD",
	} {
		if _, err := entry.ParseKeys(wrong); err == nil {
			t.Errorf("%q: taken", wrong)
		} else if strings.Contains(err.Error(), secret[1:]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

// FuzzVerify: whatever a client sends is refused, or is the one text of a ticket.
func FuzzVerify(f *testing.F) {
	ring := ringOf(f, keyOf("k1", 1))
	text := sign(f, ring, entry.Ticket{GivenAt: noon, Turn: 42}, "drop-1", "ann")
	f.Add(text)
	f.Add("")
	f.Add(text[:40])
	f.Add("AQJrMQ")
	f.Add(strings.Repeat("_", 83))
	f.Fuzz(func(t *testing.T, given string) {
		ticket, err := ring.Verify(given, "drop-1", "ann", noon)
		if err != nil {
			return
		}
		if again := sign(t, ring, ticket, "drop-1", "ann"); again != given {
			t.Errorf("%q is taken, and is not the text %q of %+v", given, again, ticket)
		}
	})
}

// BenchmarkVerify verifies tickets of many buyers, on one core: the second of two keys, which is looked for longer.
func BenchmarkVerify(b *testing.B) {
	former, newer := keyOf("2026-a", 1), keyOf("2026-b", 2)
	ring := ringOf(b, former)
	const buyers = 1000
	var users, texts [buyers]string
	for i := range buyers {
		users[i] = fmt.Sprintf("01971f4e-8a3b-7c5d-9e2f-%012d", i)
		texts[i] = sign(b, ring, entry.Ticket{GivenAt: noon, Turn: entry.Turn(i)}, "drop-1", users[i])
	}
	must(b, ring.Replace([]entry.Key{newer, former}))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := ring.Verify(texts[i], "drop-1", users[i], noon); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % buyers
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tickets/s")
}

// BenchmarkVerifyForged is what a ticket costs that was made up.
func BenchmarkVerifyForged(b *testing.B) {
	ring := ringOf(b, keyOf("k1", 1))
	text := sign(b, ring, entry.Ticket{GivenAt: noon}, "drop-1", "ann")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ring.Verify(text, "drop-1", "eve", noon); !errors.Is(err, entry.Forged) {
			b.Fatal(err)
		}
	}
}
