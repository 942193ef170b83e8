package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/cmd/sluice/demo"
	"sluice/internal/table"
	"sluice/internal/view"
)

type demoCmd struct {
	Requests  int           `placeholder:"N" help:"HTTP requests in all, 200 to 1000000; default 20000."`
	Buyers    int           `placeholder:"N" help:"Buyers, at most half of the requests; default two fifths of them."`
	Stock     int           `placeholder:"UNITS" help:"Units for sale, 10 or more, at most one per buyer; default 1000."`
	Rate      int           `placeholder:"N" help:"Requests per second at most, 100 to 50000; default 4000."`
	PayWithin time.Duration `placeholder:"TIME" help:"How long buyers have to pay, for instance 30s; default: as long as the rush should take, and some seconds."`
	Seed      uint64        `placeholder:"N" help:"Seed of everything random; default: a new one each time."`
	Citus     bool          `help:"On a Postgres of three nodes, of which one dies in the rush and comes back. Needs the Citus extension for the Postgres of this machine."`
}

// Run runs the demo. With --json its log goes to stderr and the result to stdout.
func (c *demoCmd) Run(a *app) error {
	if err := a.settings.refuseServers("demo"); err != nil {
		return err
	}
	story := a.out
	if a.json {
		story = a.err
	}
	began := time.Now()
	result, err := demo.Run(a.ctx, demo.Options{
		Requests: c.Requests, Buyers: c.Buyers, Stock: c.Stock, Rate: c.Rate, Seed: c.Seed, PayWithin: c.PayWithin,
		Citus: c.Citus,
	}, story)
	if err != nil && a.ctx.Err() != nil {
		sayf(a.err, "sluice: interrupted; the demo's servers and processes are gone")
		return errFound
	}
	if result != nil {
		if printErr := a.printDemo(result, time.Since(began)); printErr != nil {
			return printErr
		}
	}
	if err != nil {
		return fmt.Errorf("the demo broke off: %w", err)
	}
	if !result.OK {
		return errFound
	}
	return nil
}

func (a *app) printDemo(r *demo.Result, took time.Duration) error {
	if a.json {
		return a.printJSON(struct {
			*demo.Result
			Audit view.Audit `json:"audit"`
		}{r, view.NewAudit(r.Audit)})
	}
	if err := printDemoTables(a.out, r); err != nil {
		return err
	}
	if len(r.Complaints) > 0 && !r.OK {
		sayf(a.out, "\nWhat the API and the workers complained about:\n  %s", strings.Join(r.Complaints, "\n  "))
	}
	if r.OK {
		sayf(a.out, "\n✓ Nothing was lost, sold twice or leaked. (%s; everything is cleaned up)", age(took))
	} else {
		sayf(a.out, "\n✗ Something is wrong; the demo can be repeated with --seed %d. (%s)", r.Seed, age(took))
	}
	return nil
}

func printDemoTables(w io.Writer, r *demo.Result) error {
	checks := table.New("", "", "")
	for _, c := range r.Checks {
		checks.Row(mark(c.OK), c.Name, c.Detail)
	}
	answers := table.New("", ">", "")
	for _, code := range slices.Sorted(maps.Keys(r.Answers)) {
		answers.Row(code, r.Answers[code], meaning(code, r))
	}
	answers.Row("no answer", r.Abandoned, "given up by the client, which asked again with the same key")
	speed := table.New("", ">P50", ">P99", ">MAX")
	speed.Row("answer, as clients saw it", ms(r.Latency.P50), ms(r.Latency.P99), ms(r.Latency.Max))
	speed.Row("accept until row in Postgres", ms(r.PersistLag.P50), ms(r.PersistLag.P99), ms(r.PersistLag.Max))
	if err := checks.Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   How %s requests were answered:", table.Number(int64(r.Requests)))
	if err := answers.Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   How the orders ended (%s units for sale, %s left over in the end):", table.Number(int64(r.Stock)),
		table.Number(int64(r.Left)))
	if err := endsTable(r).Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   How the payment provider was answered:")
	if err := moneyTable(r).Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   How fast, at %s requests per second on this machine (orders of the dead worker aside):",
		table.Number(int64(r.PerSecond)))
	if err := speed.Write(w, "   "); err != nil {
		return err
	}
	sayf(w, "\n   The audit (units; sluice audit shows it at any time):")
	return printAudits(w, []view.Audit{view.NewAudit(r.Audit)}, "   ")
}

func endsTable(r *demo.Result) *table.Table {
	ends := table.New("", ">", "")
	ends.Row("paid", r.Ends.Paid, "")
	ends.Row("cancelled", r.Ends.Cancelled, "by the buyer; the unit went on")
	ends.Row("expired", r.Ends.Expired, "not paid in time; the unit went on")
	if r.Ends.RefundDue > 0 {
		ends.Row("refund due", r.Ends.RefundDue, "paid too late; the unit went on")
	}
	if r.Ends.Awaiting > 0 {
		ends.Row("unpaid", r.Ends.Awaiting, "still waiting for payment")
	}
	ends.Row("handed over", r.Ends.HandedOver,
		fmt.Sprintf("of all these, to buyers on the waitlist: %s joined, %s left again",
			table.Number(int64(r.Waiters)), table.Number(int64(r.Leavers))))
	return ends
}

func moneyTable(r *demo.Result) *table.Table {
	money := table.New("", ">", "")
	for _, outcome := range slices.Sorted(maps.Keys(r.Payments)) {
		money.Row(outcome, r.Payments[outcome], moneyMeaning[outcome])
	}
	return money
}

var moneyMeaning = map[string]string{
	"paid":              "200: the order is paid; the same webhook again, the same answer",
	"repeated":          "200: the same payment under another webhook-id",
	"refund_due":        "200: too late, the money is to be paid back",
	"waiting":           "202: the order is not in Postgres yet; decided as soon as it is",
	"amount-mismatch":   "422: not the price; on record, without effect",
	"invalid-signature": "401: forged",
}

func meaning(code string, r *demo.Result) string {
	switch code {
	case "accepted":
		return fmt.Sprintf("202: %s orders, and %s times the same answer to the same key",
			table.Number(int64(r.Answers[code]-r.Replays)), table.Number(int64(r.Replays)))
	case "already-ordered":
		return "409: the buyer has an order, which the answer names"
	case "sold-out":
		return "409: nothing left"
	case "sale-not-open":
		return "409: too early, by Redis' clock"
	case "sale-closed":
		return "409: too late"
	default:
		return ""
	}
}

func ms(v float64) string { return fmt.Sprintf("%.1f ms", v) }
