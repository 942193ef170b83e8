package main

import (
	"cmp"
	"slices"
)

// graph has an arrow from each key to each name in its set.
type graph map[string]map[string]bool

type arrow struct{ from, to string }

// add adds an arrow. One from a name to itself is none.
func (g graph) add(from, to string) {
	if from == to {
		return
	}
	if g[from] == nil {
		g[from] = map[string]bool{}
	}
	g[from][to] = true
}

// arrows lists them by name.
func (g graph) arrows() []arrow {
	var all []arrow
	for from, targets := range g {
		for to := range targets {
			all = append(all, arrow{from, to})
		}
	}
	slices.SortFunc(all, func(a, b arrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return all
}

// circles returns the arrows that are part of a circle.
func (g graph) circles() []arrow {
	return slices.DeleteFunc(g.arrows(), func(a arrow) bool { return !g.leads(a.to, a.from, map[string]bool{}) })
}

func (g graph) leads(from, to string, seen map[string]bool) bool {
	seen[from] = true
	for next := range g[from] {
		if next == to || !seen[next] && g.leads(next, to, seen) {
			return true
		}
	}
	return false
}

// back counts the arrows that lead from a name lower in the order to a higher one.
func (g graph) back() int {
	height := map[string]int{}
	for _, a := range g.arrows() {
		height[a.from]++
		height[a.to]--
	}
	return len(slices.DeleteFunc(g.arrows(), func(a arrow) bool { return height[a.from] >= height[a.to] }))
}
