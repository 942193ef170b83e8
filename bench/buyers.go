package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// buyersCommand is the argument under which this program is started again, as the buyers' process.
const buyersCommand = "buyers-process"

// Buyers is the process that sends orders. It ends with its standard input, so it can't outlive this one.
type Buyers struct {
	process *exec.Cmd
	input   io.WriteCloser
	asks    *json.Encoder
	answers *json.Decoder
}

func startBuyers() (*Buyers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.Command(self, buyersCommand)
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	return &Buyers{process, input, json.NewEncoder(input), json.NewDecoder(output)}, nil
}

func (b *Buyers) pid() int { return b.process.Process.Pid }

// gather opens a flood's connections, so that this is not on the clock.
func (b *Buyers) gather(f Flood) error {
	if err := b.asks.Encode(f); err != nil {
		return err
	}
	tally, err := b.answer()
	if err == nil && !tally.Ready {
		err = errors.New("the buyers' process is out of step")
	}
	return err
}

// release lets the gathered buyers go and waits until all are answered.
func (b *Buyers) release() (Tally, error) {
	if err := b.asks.Encode(struct{}{}); err != nil {
		return Tally{}, err
	}
	return b.answer()
}

func (b *Buyers) answer() (Tally, error) {
	var tally Tally
	if err := b.answers.Decode(&tally); err != nil {
		return tally, fmt.Errorf("the buyers' process does not answer: %w", err)
	}
	if tally.Error != "" {
		return tally, errors.New(tally.Error)
	}
	return tally, nil
}

// close ends the process. Calling it on one that has died is harmless.
func (b *Buyers) close() error {
	const patience = 5 * time.Second // it has nothing to finish
	err := b.input.Close()
	overdue := time.AfterFunc(patience, func() { _ = b.process.Process.Kill() })
	defer overdue.Stop()
	return errors.Join(err, b.process.Wait())
}

// serveBuyers is the process' whole life: one flood after the other, until its input ends. It returns the exit code.
func serveBuyers(in io.Reader, out io.Writer) int {
	asks, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var flood Flood
		if err := asks.Decode(&flood); err != nil {
			return exitFine // the parent has gone, or is done
		}
		tally, err := flood.serve(asks, answers)
		if err != nil {
			tally = Tally{Error: err.Error()}
		}
		if err := answers.Encode(tally); err != nil {
			return exitFault
		}
	}
}

func (f *Flood) serve(asks *json.Decoder, answers *json.Encoder) (Tally, error) {
	crowd, err := f.crowd()
	if err != nil {
		return Tally{}, err
	}
	defer crowd.close()
	if err := answers.Encode(Tally{Ready: true}); err != nil {
		return Tally{}, err
	}
	var begin struct{}
	if err := asks.Decode(&begin); err != nil {
		return Tally{}, err
	}
	return crowd.run(f)
}
