package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"sluice/internal/programs"
	"sluice/internal/table"
)

// devLog prints what several processes write, line by line, each with the name of its process.
type devLog struct {
	colours bool

	mu  sync.Mutex // protects out: lines must not mix
	out io.Writer
}

func newDevLog(out io.Writer) *devLog { return &devLog{out: out, colours: wantsColours(out)} }

// wantsColours reports whether colours are of use: on a terminal, unless NO_COLOR (no-color.org) is set.
func wantsColours(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// ANSI colours.
const (
	colourRed    = 31
	colourYellow = 33
	colourGrey   = 90
)

// memberColours are those of the API and of the workers in turn.
var memberColours = []int{36, 32, 35, 34}

func (l *devLog) paint(colour int, text string) string {
	if !l.colours {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, text)
}

// hear prints a line of a member.
func (l *devLog) hear(line programs.Line) {
	text := table.Printable(line.Text())
	switch line.Level {
	case "ERROR":
		text = l.paint(colourRed, text)
	case "WARN":
		text = l.paint(colourYellow, text)
	}
	l.line(line.Process, colourOf(line.Process), line.Time, line.Level, text)
}

// say prints a line of our own.
func (l *devLog) say(text string) { l.line("dev", colourGrey, time.Now(), "", text) }

func (l *devLog) line(who string, colour int, at time.Time, level, text string) {
	if level == "INFO" {
		level = "" // what is usual needs no word
	}
	if level != "" {
		level += " "
	}
	l.print(fmt.Sprintf("%s %s %s%s\n", l.paint(colour, fmt.Sprintf("%-9s", who)),
		l.paint(colourGrey, at.Format("15:04:05.000")), level, text))
}

func (l *devLog) print(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.out, text) // a closed terminal is no error
}

func colourOf(member string) int {
	if !strings.HasPrefix(member, "worker-") {
		return memberColours[0]
	}
	n := 0
	_, _ = fmt.Sscanf(member, "worker-%d", &n) // 0 is a colour too
	return memberColours[1+n%(len(memberColours)-1)]
}
