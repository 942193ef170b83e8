package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// bench places its orders in a real sale, tells what became of them, and places none before it is told to.
func TestBench(t *testing.T) {
	t.Parallel()
	_, api, _ := startDev(t, "--sale", "--workers", "1")
	command := []string{
		"bench", "--url", api, "--sale", devSale, "--rate", "200", "--duration", "2s", "--warm-up", "200ms",
	}

	refused := sluice(t, nil, command...)
	if refused.code != 2 || refused.out != "" || !strings.Contains(refused.err, "nothing was ordered") {
		t.Errorf("without a confirmation: got %+v", refused)
	}
	for _, loud := range []string{"WARNING", "REAL ORDERS", "REAL STOCK", "about 440", devSale, api, "1,000 units"} {
		if !strings.Contains(refused.err, loud) {
			t.Errorf("the warning does not say %q:\n%s", loud, refused.err)
		}
	}
	if left := unitsLeft(t, api); left != devSaleStock {
		t.Fatalf("%d units are left after a load that was refused, want all %d", left, devSaleStock)
	}

	v := decoded[benchView](t, typing(t, devSale, append(command, "--json")...).mustFine(t))
	if v.Accepts.Count == 0 || v.Accepts.P50 <= 0 || v.Accepts.P99 < v.Accepts.P50 || v.AcceptedPerSecond <= 0 {
		t.Errorf("got %+v, want accepts and their waits", v)
	}
	testkit.Eventually(t, time.Minute, "as many units to be taken as buyers were accepted", func() bool {
		taken := devSaleStock - unitsLeft(t, api) // the warm-up's are among them, and not among the accepts
		return taken >= v.Accepts.Count && taken <= 2*v.Accepts.Count
	})

	// The rest of the stock is sold, and then some ask for more.
	text := sluice(t, nil, append(command, "--yes", "--rate", "600")...).mustFine(t)
	for _, says := range []string{"REQUESTS", "202", "409 sold-out", "rejected", "orders/s were accepted"} {
		if !strings.Contains(text, says) {
			t.Errorf("the table does not say %q:\n%s", says, text)
		}
	}
	testkit.Eventually(t, time.Minute, "no unit to be left", func() bool { return unitsLeft(t, api) == 0 })
	unknown := []string{"bench", "--url", api, "--sale", "drop-9", "--rate", "1", "--yes"}
	sluice(t, nil, unknown...).mustRefuse(t, 2, "no sale drop-9")
	away := []string{"bench", "--url", "http://127.0.0.1:1", "--sale", devSale, "--rate", "1", "--yes"}
	sluice(t, nil, away...).mustRefuse(t, 1, "does not answer")
}

// typing runs the program with a line on its standard input.
func typing(t *testing.T, line string, args ...string) outcome {
	t.Helper()
	cmd := program(t.Context(), nil, args...)
	var out, errOut strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(line+"\n"), &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// unitsLeft asks the API until it knows. What it says may be a little old.
func unitsLeft(t *testing.T, api string) (units int64) {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	var sale struct {
		Remaining *int64 `json:"remaining"`
	}
	testkit.Eventually(t, time.Minute, "the units that are left", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api+"/v1/sales/"+devSale, nil)
		must(t, err)
		response, err := client.Do(request)
		must(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, json.Unmarshal(text, &sale))
		return sale.Remaining != nil
	})
	return *sale.Remaining
}
