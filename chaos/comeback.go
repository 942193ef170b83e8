package chaos

import (
	"fmt"
	"strconv"
	"sync"

	"sluice/internal/programs"
	"sluice/internal/table"
)

// comeback counts where the accepts that a store lost came back from, by what the programs write about it. Its zero value
// has counted nothing.
type comeback struct {
	mu     sync.Mutex // protects counts
	counts comebackReport
}

// comebackReport is where the accepts that a store lost came back from. One that is lost twice counts twice.
type comebackReport struct {
	Postgres int64 `json:"postgres"` // from their rows, and from the stream where Redis still had that
	Workers  int64 `json:"workers"`  // from the memory of a worker that had read them
	APIs     int64 `json:"apis"`     // from the accept journal of the API that gave the receipt
	Rejected int64 `json:"rejected"` // the units were gone: rejected with a dead letter
	Redis    int64 `json:"redis"`    // lost by Postgres, and stored again from their slots
}

// hear counts what a line says.
func (c *comeback) hear(line *programs.Line) {
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(line.Field(field), 10, 64) // a field that is missing is 0
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch line.Message {
	case "a sale was rebuilt in Redis":
		c.counts.Postgres += max(0, number("accepted_after")-number("accepted_before")-number("missing"))
	case "submitted fetched orders to Redis again":
		c.counts.Workers += number("renewed")
		c.counts.Rejected += number("lost")
	case "submitted accepted orders to Redis again":
		c.counts.APIs += number("renewed")
		c.counts.Rejected += number("lost")
	case "orders that Postgres had forgotten were stored again; the payment provider knows which are paid":
		c.counts.Redis += number("restored")
	}
}

func (c *comeback) report() comebackReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// rows adds the counts to a table.
func (c comebackReport) rows(t *table.Table) {
	t.Row("accepts that Redis lost", fmt.Sprint(c.Postgres+c.Workers+c.APIs+c.Rejected))
	t.Row("  that came back from Postgres", c.Postgres)
	t.Row("  from a worker's memory", c.Workers)
	t.Row("  from an API's journal", c.APIs)
	t.Row("  rejected, because their units were gone", c.Rejected)
	t.Row("accepts that Postgres lost, stored again from Redis", c.Redis)
}
