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

// voice tells the story while it happens. On a terminal the last line moves; elsewhere a line appears each second.
type voice struct {
	out      io.Writer
	terminal *os.File // nil when out is none

	mu    sync.Mutex // protects out and the rest
	step  int
	moves bool // the last line on the terminal is one that moves
	began time.Time
}

func newVoice(out io.Writer) *voice {
	v := &voice{out: out, began: time.Now()}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) {
		v.terminal = f
	}
	return v
}

// chapterf begins a new part of the story.
func (v *voice) chapterf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.step++
	v.line(fmt.Sprintf("%d. %s", v.step, fmt.Sprintf(format, args...)))
}

// notef tells something that has happened.
func (v *voice) notef(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.line("   " + fmt.Sprintf(format, args...))
}

// line needs mu.
func (v *voice) line(text string) {
	v.wipe()
	fmt.Fprintln(v.out, text)
}

// wipe needs mu. It removes the line that moves.
func (v *voice) wipe() {
	if v.moves {
		fmt.Fprint(v.out, "\r\x1b[2K")
		v.moves = false
	}
}

// watch shows how something goes on until the returned function is called, which shows the end of it.
func (v *voice) watch(picture func() string) (stop func()) {
	every := plainEvery
	if v.terminal != nil {
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
				v.show(picture())
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
		v.notef("%s", picture())
	}
}

func (v *voice) show(picture string) {
	if v.terminal == nil {
		v.notef("%s", picture)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wipe()
	fmt.Fprint(v.out, clip("   "+picture, v.width()))
	v.moves = true
}

func (v *voice) width() int {
	if width, _, err := term.GetSize(int(v.terminal.Fd())); err == nil && width > 1 {
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
