package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"sluice/internal/loadgen"
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
func (b *buyersProcess) prepare(next loadgen.Config) error {
	if err := b.asks.Encode(next); err != nil {
		return err
	}
	answer, err := b.answer()
	if err == nil && !answer.Ready {
		err = errors.New("the buyers' process is out of step")
	}
	return err
}

// start lets the gathered buyers go and waits until all are answered.
func (b *buyersProcess) start() (*loadgen.Result, error) {
	if err := b.asks.Encode(struct{}{}); err != nil {
		return nil, err
	}
	answer, err := b.answer()
	if err == nil && answer.Result == nil {
		err = errors.New("the buyers' process is out of step")
	}
	return answer.Result, err
}

func (b *buyersProcess) answer() (answer buyersAnswer, err error) {
	if err := b.answers.Decode(&answer); err != nil {
		return answer, fmt.Errorf("the buyers' process does not answer: %w", err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
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
		var next loadgen.Config
		if err := asks.Decode(&next); err != nil {
			return exitFine // the parent has gone, or is done
		}
		answer := buyersAnswer{}
		result, err := serveLoad(next, asks, answers)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Result = &result
		}
		if err := answers.Encode(answer); err != nil {
			return exitFault
		}
	}
}

// serveLoad runs one load. It ends by itself, after its length and a deadline at the latest.
func serveLoad(next loadgen.Config, asks *json.Decoder, answers *json.Encoder) (loadgen.Result, error) {
	ctx := context.Background()
	generator, err := loadgen.Open(ctx, next)
	if err != nil {
		return loadgen.Result{}, err
	}
	defer generator.Close()
	if err := answers.Encode(buyersAnswer{Ready: true}); err != nil {
		return loadgen.Result{}, err
	}
	var begin struct{}
	if err := asks.Decode(&begin); err != nil {
		return loadgen.Result{}, err
	}
	return generator.Run(ctx)
}
