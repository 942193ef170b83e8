package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"sluice/internal/buyers"
)

// examCases are the fail-overs of Redis for which the receipt exam says what became of accepts, by what receipts said.
var examCases = []struct {
	topology   Topology
	durability string
	kinds      []kind
}{
	{Single, "memory", []kind{killRedis, oldFile, failover}},
	{Single, "fsync", []kind{killRedis, flushAll, oldFile, failover, splitBrain}},
	{Sentinel, "fsync", []kind{killMaster, lateTakeOver}},
	{Sentinel, "replica", []kind{killMaster, stillMaster, switchMaster, lateTakeOver, flushMaster}},
	{Cluster, "replica", []kind{killMaster, stillMaster, switchMaster, lateTakeOver, flushMaster}},
}

// ExamRow is what became of the accepts of one run of the exam.
type ExamRow struct {
	Topology   Topology       `json:"topology"`
	Durability string         `json:"durability"` // what receipts said
	Kind       string         `json:"kind"`       // of fail-over
	Times      int            `json:"times"`
	Receipts   int            `json:"receipts"` // orders that an answer named to their buyer
	Comeback   comebackReport `json:"comeback"`
	TakenBack  int            `json:"taken_back"` // of those: rejected with a dead letter
	Lost       int            `json:"lost"`       // of those: in neither store in the end, with no letter
	Closed     seconds        `json:"closed_seconds"`
	OK         bool           `json:"ok"` // nothing else was wrong either
}

// Exam runs each kind of fail-over alone, again and again for the options' duration, on the options' topology or, where
// none is set, on all; and calls each with what became of the accepts. Errors: of a run; and when one found something wrong, after the last.
func Exam(ctx context.Context, o Options, out io.Writer, each func(*ExamRow) error) error {
	wrong, only := 0, o.Topology
	for _, c := range examCases {
		if only != "" && c.topology != only {
			continue
		}
		for _, k := range c.kinds {
			o.Topology, o.Durability, o.Pair = c.topology, c.durability, string(k)
			fmt.Fprintf(out, "%s, receipts say %s: %s\n", c.topology, c.durability, k)
			report, err := Run(ctx, o, out)
			if err != nil {
				return err
			}
			row := examRow(o, k, report)
			if !row.OK {
				wrong++
				if err := report.Write(out); err != nil {
					return err
				}
			}
			if err := each(row); err != nil {
				return err
			}
		}
	}
	if wrong > 0 {
		return errors.New("something is wrong; see the reports above")
	}
	return nil
}

func examRow(o Options, k kind, r *Report) *ExamRow {
	row := &ExamRow{
		Topology: o.Topology, Durability: o.Durability, Kind: string(k), Receipts: r.Accepts, Comeback: r.Comeback,
		TakenBack: r.TakenBack, Lost: r.Counts[buyers.Lost], OK: r.OK,
	}
	if i := slices.IndexFunc(r.Faults, func(f faultReport) bool { return f.Kind == k }); i >= 0 {
		row.Times, row.Closed = r.Faults[i].Times, r.Faults[i].Silence
	}
	return row
}

// ExamHeader begins the exam's table, in Markdown.
const ExamHeader = `| Redis | receipts say | fail-over | times | receipts | lost by Redis | back from Postgres | from workers | from APIs | rejected | lost for good | no 202 for, at most |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|`

// String is a row of the exam's table.
func (r *ExamRow) String() string {
	c := r.Comeback
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %.1f s |",
		r.Topology, r.Durability, r.Kind, r.Times, r.Receipts, c.Postgres+c.Workers+c.APIs+c.Rejected, c.Postgres,
		c.Workers, c.APIs, r.TakenBack, r.Lost, float64(r.Closed))
}
