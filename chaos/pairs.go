package chaos

import (
	"fmt"
	"io"
	"slices"

	"sluice/internal/table"
)

// pairReport is what became of a fault that began while another one was on.
type pairReport struct {
	First  kind `json:"first"`
	Second kind `json:"second"`
	Times  int  `json:"times"` // it was brought about
	Hits   int  `json:"hits"`  // times that both hit something, and the second began before the first was over
}

// pairs counts them, by the order in which they came first.
func (r *run) pairs() (list []pairReport) {
	faults := map[int]injected{}
	for _, f := range r.scheduler.faults {
		faults[f.Number] = f
	}
	for _, s := range r.plan {
		first, second := faults[s.During], faults[s.Number]
		if first.Number == 0 || second.Number == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(p pairReport) bool { return p.First == first.Kind && p.Second == second.Kind })
		if i < 0 {
			i, list = len(list), append(list, pairReport{First: first.Kind, Second: second.Kind})
		}
		list[i].Times++
		if first.hits > 0 && second.hits > 0 && second.began.Before(first.ended) {
			list[i].Hits++
		}
	}
	return list
}

// writePairs prints a table of all classes: the first fault in the rows, the second in the columns, how often both hit.
func (r *Report) writePairs(w io.Writer) error {
	header := []string{"FIRST, AND THEN"}
	for _, c := range classes {
		header = append(header, ">"+string(c))
	}
	pairs := table.New(header...)
	for _, first := range classes {
		row := []any{string(first)}
		for _, second := range classes {
			times, hits := 0, 0
			for _, p := range r.Pairs {
				if traits[p.First].class == first && traits[p.Second].class == second {
					times, hits = times+p.Times, hits+p.Hits
				}
			}
			cell := fmt.Sprint(hits)
			if hits < times {
				cell = fmt.Sprintf("%d of %d", hits, times)
			}
			row = append(row, cell)
		}
		pairs.Row(row...)
	}
	return pairs.Write(w, "")
}
