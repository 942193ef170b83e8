package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	liveEvery  = 100 * time.Millisecond // between two pictures on a terminal
	plainEvery = time.Second            // between two lines elsewhere
	barWidth   = 24
	plainWidth = 200 // columns where there is no terminal to ask
)

// narrator writes what happens while it happens. On a terminal the last line moves; elsewhere a line appears each
// second.
type narrator struct {
	out      io.Writer
	terminal *os.File // nil when out is none

	mu    sync.Mutex // protects out and the rest
	step  int
	moves bool // the last line on the terminal is one that moves
	began time.Time
}

func newNarrator(out io.Writer) *narrator {
	n := &narrator{out: out, began: time.Now()}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) {
		n.terminal = f
	}
	return n
}

// chapterf begins a new part of the story.
func (n *narrator) chapterf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.step++
	n.line(fmt.Sprintf("%d. %s", n.step, fmt.Sprintf(format, args...)))
}

// notef reports something that has happened.
func (n *narrator) notef(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line("   " + fmt.Sprintf(format, args...))
}

// line needs mu.
func (n *narrator) line(text string) {
	n.wipe()
	fmt.Fprintln(n.out, text)
}

// wipe needs mu. It removes the line that moves.
func (n *narrator) wipe() {
	if n.moves {
		fmt.Fprint(n.out, "\r\x1b[2K")
		n.moves = false
	}
}

// watch shows how something goes on until the returned function is called, which shows the end of it.
func (n *narrator) watch(progress func() string) (stop func()) {
	every := plainEvery
	if n.terminal != nil {
		every = liveEvery
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				n.show(progress())
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
		n.notef("%s", progress())
	}
}

func (n *narrator) show(progress string) {
	if n.terminal == nil {
		n.notef("%s", progress)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wipe()
	fmt.Fprint(n.out, clip("   "+progress, n.width()))
	n.moves = true
}

func (n *narrator) width() int {
	if width, _, err := term.GetSize(int(n.terminal.Fd())); err == nil && width > 1 {
		return width - 1 // a full line would wrap, and could not be wiped
	}
	return plainWidth
}

func clip(text string, width int) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), width)])
}

// bar draws how much of something is done.
func bar(done, all int) string {
	if all <= 0 {
		all = 1
	}
	full := min(barWidth, done*barWidth/all)
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + "]"
}
