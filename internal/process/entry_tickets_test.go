package process_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
)

const entryKeys = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func entryKeysFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	replaceFile(t, path, entryKeys)
	return path
}

// send posts to a side of an api, and returns what is answered.
func send(t *testing.T, url, body string, header ...string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

type givenTicket struct {
	EntryTicket string `json:"entry_ticket"`
	NotBefore   string `json:"not_before"`
}

// publicSide is where buyers reach an api, once it serves them.
func publicSide(t *testing.T, log *testkit.Log) string {
	t.Helper()
	testkit.Eventually(t, time.Minute, "the api to serve", func() bool { return listening.MatchString(log.String()) })
	return listening.FindStringSubmatch(log.String())[1]
}

// define creates a sale that needs entry tickets, at an api with keys.
func define(t *testing.T, admin string, opens time.Time, spread string) {
	t.Helper()
	const trusted = `(?m)^sluice_redis_trusted\{[^}]*\} `
	testkit.Eventually(t, time.Minute, "the api to be ready, and Redis to be verified", func() bool {
		status, _ := ask(t, "", admin+"/readyz")
		_, metrics := ask(t, "", admin+"/metrics")
		return status == http.StatusOK && regexp.MustCompile(trusted+"1$").MatchString(metrics) &&
			!regexp.MustCompile(trusted+"0$").MatchString(metrics)
	})
	body := `{"id":"drop-1","total":5,"entry_ticket":true,"entry_spread_seconds":` + spread + `,"opens_at":"` +
		opens.UTC().Format(time.RFC3339) + `","closes_at":"` + opens.Add(5*time.Hour).UTC().Format(time.RFC3339) + `"}`
	status, answer := send(t, admin+"/admin/v1/sales", body, "Content-Type", "application/json", "Authorization",
		"Bearer "+adminToken)
	if status != http.StatusCreated {
		t.Fatalf("create the sale: got %d %s", status, answer)
	}
}

// TestEntryTicketsOfTwoAPIs: what one api gives, another takes, with the same turn. Both take new keys from their file
// without a restart. An api without keys says so when it starts, and refuses.
func TestEntryTicketsOfTwoAPIs(t *testing.T) {
	t.Parallel()
	redis, database := testkit.PrivateRedis(t), testkit.Database(t)
	file := entryKeysFile(t)
	keys := []string{"--entry-ticket-keys-file", file, "--admin-token-file", adminTokenFile(t)}
	admin, log := runAPIOver(t, redis, database, keys...)
	one := publicSide(t, log)
	define(t, admin, time.Now().Add(30*time.Minute), "600")
	_, log = runAPIOver(t, redis, database, keys...)
	other := publicSide(t, log)

	const path = "/v1/sales/drop-1/"
	var tickets [2]givenTicket
	for i, api := range []string{one, other} {
		status, answer := send(t, api+path+"ticket", "", "X-User-Id", "ann")
		if err := json.Unmarshal([]byte(answer), &tickets[i]); err != nil || status != http.StatusOK {
			t.Fatalf("got %d %s", status, answer)
		}
	}
	if tickets[0].NotBefore != tickets[1].NotBefore {
		t.Errorf("two apis drew the turns %s and %s", tickets[0].NotBefore, tickets[1].NotBefore)
	}
	status, answer := send(t, other+path+"orders", "", "X-User-Id", "ann", "Entry-Ticket", tickets[0].EntryTicket)
	if status != http.StatusForbidden || !strings.Contains(answer, "entry-ticket-early") {
		t.Errorf("of another api: got %d %s, want that it is early", status, answer)
	}

	replaceFile(t, file, strings.Replace(entryKeys, "k1:A", "k2:B", 1)) // without the one before
	testkit.Eventually(t, time.Minute, "both apis to have the new key only", func() bool {
		for _, api := range []string{one, other} {
			_, answer := send(t, api+path+"orders", "", "X-User-Id", "ann", "Entry-Ticket", tickets[0].EntryTicket)
			if !strings.Contains(answer, "entry-ticket-invalid") {
				return false
			}
		}
		return true
	})
	if _, answer := send(t, one+path+"ticket", "", "X-User-Id", "ann"); !strings.Contains(answer, tickets[0].NotBefore) {
		t.Errorf("under another key: got %s, want the turn %s", answer, tickets[0].NotBefore)
	}

	_, log = runAPIOver(t, redis, database)
	without := publicSide(t, log)
	if !strings.Contains(log.String(), `ENTRY_TICKET_KEYS is not set: its orders are refused with a 503" sale=drop-1`) {
		t.Errorf("the start does not name the sale: %s", log.String())
	}
	for _, what := range []string{"orders", "ticket"} {
		if status, answer := send(t, without+path+what, "", "X-User-Id", "ann"); status != 503 ||
			!strings.Contains(answer, "entry-tickets-off") {
			t.Errorf("%s without keys: got %d %s", what, status, answer)
		}
	}
}

// TestTurnsGoByTheClockOfRedis: where the machine's clock says that a sale opens in half an hour, and that of Redis
// that it is open, it is open for buyers with a ticket, too.
func TestTurnsGoByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	if !localservers.CanMoveClocks() {
		t.Skip("this machine can't move a server's clock")
	}
	redis := testkit.RedisWithClock(t)
	if err := redis.SetClock(time.Hour); err != nil {
		t.Fatal(err)
	}
	admin, log := runAPIOver(t, redis, testkit.Database(t), "--entry-ticket-keys-file", entryKeysFile(t),
		"--admin-token-file", adminTokenFile(t))
	api := publicSide(t, log)
	define(t, admin, time.Now().Add(30*time.Minute), "0")
	var ticket givenTicket
	var status int
	var answer string
	testkit.Eventually(t, time.Minute, "an order to be taken", func() bool {
		_, answer = send(t, api+"/v1/sales/drop-1/ticket", "", "X-User-Id", "ann")
		if err := json.Unmarshal([]byte(answer), &ticket); err != nil {
			t.Fatal(err)
		}
		status, answer = send(t, api+"/v1/sales/drop-1/orders", "", "X-User-Id", "ann", "Entry-Ticket", ticket.EntryTicket)
		return status == http.StatusAccepted
	})
}
