package main

import (
	"fmt"
	"time"
)

const (
	// oneCoreFull is when a process with one working thread can't do more, as far as hundredths of a second show.
	oneCoreFull = 0.90
	// machineFull is when all cores together can't do more.
	machineFull = 0.92
)

// verdict says in words what kept a candidate from being faster. Redis works on one thread; for everybody else only the
// whole machine is a limit. What nobody's CPU explains is waiting.
func verdict(w Work, cores int) string {
	if w.CPU == (Usage{}) || w.Took <= 0 {
		return "unknown: there is no /proc"
	}
	if redis := w.share(w.CPU.Redis); redis >= oneCoreFull {
		return fmt.Sprintf("Redis, whose one thread is busy %.0f %% of the time", 100*redis)
	}
	busy := w.share(w.CPU.Machine+w.CPU.Stolen) / float64(cores)
	if busy < machineFull {
		return fmt.Sprintf("waiting, for disk flushes or for each other's answers: the CPUs are %.0f %% busy", 100*busy)
	}
	name, most := "", time.Duration(0)
	for _, who := range w.CPU.parties() {
		if who.used > most {
			name, most = who.name, who.used
		}
	}
	return fmt.Sprintf("CPU: all %d cores are busy, most of it (%.0f %%) with %s",
		cores, 100*most.Seconds()/(w.CPU.Machine+w.CPU.Stolen).Seconds(), name)
}

type party struct {
	name string
	used time.Duration
}

func (u Usage) parties() []party {
	return []party{
		{"sluice", u.Self},
		{"the buyers", u.Buyers},
		{"Redis", u.Redis},
		{"Postgres", u.Postgres},
		{"other programs", u.others()},
		{"other guests of the host", u.Stolen},
	}
}
