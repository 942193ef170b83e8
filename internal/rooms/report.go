package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// print writes a row for each package, the arrows between the rooms, and the totals.
func (h *house) print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "package\tfiles\tlines\ttests\tlines\texported\tlongest file\tmost parameters\tarrows\tcircles\tback")
	product, support, tests := 0, 0, 0
	for _, r := range h.packages {
		code, longest, widest := sum(r.code)
		testCode, _, _ := sum(r.tests)
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d %s\t%d %s\t%d\t%d\t%d\n",
			r.path, len(r.code), code, len(r.tests), testCode, r.exported, longest.n, longest.name, widest.n, widest.name,
			len(r.uses.arrows()), len(r.uses.circles()), r.uses.back())
		tests += testCode
		if slices.ContainsFunc(harness, func(folder string) bool { return below(r.path, folder) }) {
			support += code
		} else {
			product += code
		}
	}
	_ = t.Flush() // like every other line, it has nowhere to say that it failed
	fmt.Fprintf(out, "\narrows between the packages of %s:\n", rooms)
	for _, a := range h.imports.arrows() {
		if below(a.from, rooms) && below(a.to, rooms) {
			fmt.Fprintf(out, "  %s → %s\n", a.from, a.to)
		}
	}
	fmt.Fprintf(out, "imports that are part of a circle, in the whole tree: %d\n\n", len(h.imports.circles()))
	fmt.Fprintf(out, "lines: product %d, harness %d, tests %d\n", product, support, tests)
}

// sum counts the lines of some files, and finds the longest file and the function with most parameters.
func sum(files []file) (lines int, longest, widest count) {
	for _, f := range files {
		lines += f.lines
		if f.lines > longest.n {
			longest = count{f.lines, f.name}
		}
		for _, one := range f.functions {
			if one.n > widest.n {
				widest = one
			}
		}
	}
	return lines, longest, widest
}

// breaches returns what exceeds a limit, one line each.
func (h *house) breaches(most limit) []string {
	var found []string
	exceeds := func(what string, n, most int) {
		if n > most {
			found = append(found, fmt.Sprintf("%s: %d, at most %d", what, n, most))
		}
	}
	for _, r := range h.packages {
		exceeds(r.path+": exported symbols", r.exported, most.exported)
		for i, f := range slices.Concat(r.code, r.tests) {
			allowed := most.codeLines
			if i >= len(r.code) {
				allowed = most.testLines
			}
			exceeds(r.path+"/"+f.name+": lines", f.lines, allowed)
			for _, one := range f.functions {
				exceeds(r.path+"/"+f.name+": parameters of "+one.name, one.n, most.parameters)
			}
		}
	}
	for _, a := range h.imports.circles() {
		found = append(found, fmt.Sprintf("%s → %s: part of a circle", a.from, a.to))
	}
	return found
}
