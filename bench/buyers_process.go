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

// buyersProcess is the process that sends orders. It ends with its standard input, so it can't outlive this one.
type buyersProcess struct {
	process *exec.Cmd
	input   io.WriteCloser
	asks    *json.Encoder
	answers *json.Decoder
}

func startBuyers() (*buyersProcess, error) {
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
	return &buyersProcess{process, input, json.NewEncoder(input), json.NewDecoder(output)}, nil
}

func (b *buyersProcess) pid() int { return b.process.Process.Pid }

// prepare opens a load's connections, so that this is not on the clock.
func (b *buyersProcess) prepare(f load) error {
	if err := b.asks.Encode(f); err != nil {
		return err
	}
	tally, err := b.answer()
	if err == nil && !tally.Ready {
		err = errors.New("the buyers' process is out of step")
	}
	return err
}

// start lets the gathered buyers go and waits until all are answered.
func (b *buyersProcess) start() (loadResult, error) {
	if err := b.asks.Encode(struct{}{}); err != nil {
		return loadResult{}, err
	}
	return b.answer()
}

func (b *buyersProcess) answer() (loadResult, error) {
	var tally loadResult
	if err := b.answers.Decode(&tally); err != nil {
		return tally, fmt.Errorf("the buyers' process does not answer: %w", err)
	}
	if tally.Error != "" {
		return tally, errors.New(tally.Error)
	}
	return tally, nil
}

// close ends the process. Calling it on one that has died is harmless.
func (b *buyersProcess) close() error {
	const patience = 5 * time.Second // it has nothing to finish
	err := b.input.Close()
	overdue := time.AfterFunc(patience, func() { _ = b.process.Process.Kill() })
	defer overdue.Stop()
	return errors.Join(err, b.process.Wait())
}

// serveBuyers is the process' whole life: one load after the other, until its input ends. It returns the exit code.
func serveBuyers(in io.Reader, out io.Writer) int {
	asks, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var next load
		if err := asks.Decode(&next); err != nil {
			return exitFine // the parent has gone, or is done
		}
		tally, err := next.serve(asks, answers)
		if err != nil {
			tally = loadResult{Error: err.Error()}
		}
		if err := answers.Encode(tally); err != nil {
			return exitFault
		}
	}
}

func (f *load) serve(asks *json.Decoder, answers *json.Encoder) (loadResult, error) {
	connections, err := f.connections()
	if err != nil {
		return loadResult{}, err
	}
	defer connections.close()
	if err := answers.Encode(loadResult{Ready: true}); err != nil {
		return loadResult{}, err
	}
	var begin struct{}
	if err := asks.Decode(&begin); err != nil {
		return loadResult{}, err
	}
	return connections.run(f)
}
