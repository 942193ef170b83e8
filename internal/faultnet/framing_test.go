package faultnet

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// ends feeds a stream in chunks of random sizes and returns where its messages end.
func ends(t *testing.T, f framing, stream []byte, rnd *rand.Rand) []int {
	t.Helper()
	var found []int
	for at := 0; at < len(stream); {
		chunk := stream[at:min(len(stream), at+1+rnd.IntN(7))]
		for len(chunk) > 0 {
			n, ended := f.next(chunk)
			if n < 1 || n > len(chunk) {
				t.Fatalf("next consumed %d of %d bytes", n, len(chunk))
			}
			at += n
			chunk = chunk[n:]
			if ended {
				found = append(found, at)
			}
		}
	}
	return found
}

// joined returns a stream of messages and the end of each.
func joined(messages []string) (stream []byte, ends []int) {
	for _, m := range messages {
		stream = append(stream, m...)
		ends = append(ends, len(stream))
	}
	return stream, ends
}

func TestRESPMessagesEndWhereTheyEnd(t *testing.T) {
	t.Parallel()
	messages := []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", ",1.5\r\n", "#t\r\n", "_\r\n", "(349\r\n",
		"$5\r\nhello\r\n", "$0\r\n\r\n", "$-1\r\n", "$6\r\n*1\r\n$9\r\n", // a bulk that looks like another value
		"*0\r\n", "*-1\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2\r\n*1\r\n:1\r\n*2\r\n:1\r\n+x\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "%0\r\n", "~2\r\n:1\r\n:2\r\n", ">2\r\n+push\r\n$1\r\nx\r\n",
		"=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n", "|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n",
		"*2\r\n|1\r\n+a\r\n:1\r\n:1\r\n:2\r\n", "PING\r\n",
		"$" + "1000\r\n" + strings.Repeat("\n", 1000) + "\r\n",
	}
	const seed = 20261121
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range 200 {
		rnd.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		stream, want := joined(messages)
		requests, _ := respFramings()
		if got := ends(t, requests, stream, rnd); !slices.Equal(got, want) {
			t.Fatalf("seed %d, round %d: messages of %q end at %v, want %v", seed, round, stream, got, want)
		}
	}
}

func TestWhatAServerSendsByItselfAnswersNothing(t *testing.T) {
	t.Parallel()
	_, replies := respFramings()
	if replies.counts('>') || !replies.counts('*') {
		t.Error("a push must not count as a reply, and an array must")
	}
}

func pgMessage(kind byte, body string) string {
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+pgLength))
	return string(head) + body
}

func TestPostgresMessagesEndWhereTheyEnd(t *testing.T) {
	t.Parallel()
	startup := pgMessage(0, "\x00\x03\x00\x00user\x00sluice\x00\x00")[1:]
	asked := []string{
		startup,
		pgMessage('p', "a password") + pgMessage('Q', "select 1\x00"),
		pgMessage('P', "\x00insert\x00") + pgMessage('B', "Q S Z F") + pgMessage('E', "") + pgMessage('S', ""),
		pgMessage('Q', "copy orders from stdin\x00"),
		pgMessage('d', strings.Repeat("S\x00\x00\x00\x04", 30)) + pgMessage('c', "") + pgMessage('F', "a call"),
	}
	answered := []string{
		pgMessage('R', "\x00\x00\x00\x00") + pgMessage('S', "TimeZone\x00UTC\x00") + pgMessage('Z', "I"),
		pgMessage('T', "row") + pgMessage('D', "Z\x00\x00\x00\x05I") + pgMessage('C', "SELECT 1\x00") + pgMessage('Z', "I"),
		pgMessage('E', "error") + pgMessage('Z', "E"),
	}
	const seed = 20261121
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		requests, replies := pgFramings()
		stream, want := joined(asked)
		if got := ends(t, requests, stream, rnd); !slices.Equal(got, want) {
			t.Fatalf("seed %d: requests end at %v, want %v", seed, got, want)
		}
		stream, want = joined(answered)
		if got := ends(t, replies, stream, rnd); !slices.Equal(got, want) {
			t.Fatalf("seed %d: replies end at %v, want %v", seed, got, want)
		}
	}
}

// FuzzFraming checks the one property that forwarding relies on: every framing makes progress.
func FuzzFraming(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte("%-5\r\n$-7\r\n|99999999999999999999\r\n"))
	f.Add([]byte(pgMessage('Q', "select 1\x00")))
	f.Add([]byte{'Z', 0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		rnd := rand.New(rand.NewPCG(1, 1))
		for _, framings := range []func() (framing, framing){respFramings, pgFramings} {
			requests, replies := framings()
			ends(t, requests, stream, rnd)
			ends(t, replies, stream, rnd)
		}
	})
}
