package main

import (
	"fmt"
	"os"
)

// progress shows what is being measured: a line that is overwritten on a terminal, else one line for each comparison.
type progress struct {
	out      *os.File
	terminal bool
}

func newProgress(out *os.File) progress {
	info, err := out.Stat()
	return progress{out, err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p progress) step(title string, round, rounds int) {
	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\x1b[K%s: round %d of %d", title, round, rounds)
	case round == 0:
		fmt.Fprintln(p.out, title)
	}
}

func (p progress) done() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
