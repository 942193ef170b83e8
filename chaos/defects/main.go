package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/chaos"
	"sluice/internal/buyers"
)

const (
	// runLimit bounds one run: a minute of faults, two for a broken build that never settles, and what comes before
	// and after.
	runLimit   = 10 * time.Minute
	buildLimit = 10 * time.Minute
	// stopGrace is how long a run may take to end its servers once it was asked to stop.
	stopGrace = 30 * time.Second
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complaints io.Writer) int {
	flags := flag.NewFlagSet("chaos-defects", flag.ContinueOnError)
	flags.SetOutput(complaints)
	seed := flags.Uint64("seed", 1, "of every run")
	minutes := flags.Float64("minutes", 1, "how long faults are injected in each run")
	only := flags.String("only", "", "names of defects, with commas between; all when empty")
	keep := flags.String("keep", "", "folder for the reports, as JSON; none are kept when empty")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(complaints, "chaos-defects:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	failed := 0
	for i := range chosen {
		t := trial{defect: &chosen[i], seed: *seed, minutes: *minutes, keep: *keep}
		if err := t.run(ctx, out); err != nil {
			failed++
			fmt.Fprintf(out, "%s: %v\n", t.name, err)
		}
		if ctx.Err() != nil {
			return 1
		}
	}
	if failed > 0 {
		fmt.Fprintf(out, "✗ %d of %d defects did not do what is said of them\n", failed, len(chosen))
		return 1
	}
	fmt.Fprintf(out,
		"✓ %d defects: each was caught, by a run or by the test that is named, or harmless for the reason that is given\n",
		len(chosen))
	return 0
}

func choose(names string) ([]defect, error) {
	if names == "" {
		return defects, nil
	}
	var chosen []defect
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(defects, func(d defect) bool { return d.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no defect %q; chaos/defects/list.go has them all", name)
		}
		chosen = append(chosen, defects[i])
	}
	return chosen, nil
}

// trial is one chaos run with one defect.
type trial struct {
	*defect
	seed    uint64
	minutes float64
	keep    string
}

// run builds the broken program, does the run and judges it. An error says that the defect was not caught, or could
// not be tried.
func (t *trial) run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "chaos-defects-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // else the system cleans its temporary folder
	if t.caughtBy != nil {
		return t.runTest(ctx, dir, out)
	}
	program, err := t.build(ctx, dir)
	if err != nil {
		return err
	}
	r, err := t.execute(ctx, program)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: seed %d, %s\n", t.name, r.Seed, summary(r))
	return t.judge(r)
}

// runTest has the test fail that catches this defect.
func (t *trial) runTest(ctx context.Context, dir string, out io.Writer) error {
	overlay, err := t.overlay(".", dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	c := exec.CommandContext(ctx, "go", "test", "-count=1", "-overlay", overlay, "-run", "^"+t.caughtBy.name+"$",
		t.caughtBy.folder)
	text, err := c.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("NOT caught by %s", t.caughtBy.name)
	case !bytes.Contains(text, []byte("--- FAIL: "+t.caughtBy.name)):
		return fmt.Errorf("%s did not run: %w\n%s", t.caughtBy.name, err, text)
	}
	fmt.Fprintf(out, "%s: %s fails\n", t.name, t.caughtBy.name)
	return nil
}

func (t *trial) build(ctx context.Context, dir string) (program string, err error) {
	overlay, err := t.overlay(".", dir)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	program = filepath.Join(dir, "chaos")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program,
		"./chaos/run")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the broken program can't be built: %w\n%s", err, text)
	}
	return program, nil
}

// execute returns the report of the run, whatever it says.
func (t *trial) execute(ctx context.Context, program string) (*chaos.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	var report, story bytes.Buffer
	c := exec.CommandContext(ctx, program, "-json", "-seed", fmt.Sprint(t.seed), "-minutes", fmt.Sprint(t.minutes))
	c.Stdout, c.Stderr = &report, &story
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // it ends its servers before itself
	c.WaitDelay = stopGrace
	runErr := c.Run()
	r := &chaos.Report{}
	if err := json.Unmarshal(report.Bytes(), r); err != nil {
		return nil, fmt.Errorf("no report: %w\n%s", errors.Join(runErr, err), story.Bytes())
	}
	if code := c.ProcessState.ExitCode(); (code == 0) != r.OK {
		return nil, fmt.Errorf("exit code %d with a report that says ok: %t", code, r.OK)
	}
	if t.keep == "" {
		return r, nil
	}
	return r, os.WriteFile(filepath.Join(t.keep, t.name+".json"), report.Bytes(), 0o600)
}

func (t *trial) judge(r *chaos.Report) error {
	switch caught := len(r.Findings)+len(wrongs(r)) > 0; {
	case !caught && t.harmless == "":
		return errors.New("NOT caught")
	case caught && t.harmless != "":
		return fmt.Errorf("it should be harmless: %s", t.harmless)
	}
	return nil
}

// wrongs are what is wrong besides the verdicts, but for faults that never happened: that says nothing of the product.
func wrongs(r *chaos.Report) []string {
	return slices.DeleteFunc(slices.Clone(r.Wrong),
		func(text string) bool { return strings.HasSuffix(text, " never happened") })
}

// summary is the verdict in one line, with the first finding.
func summary(r *chaos.Report) string {
	if r.OK {
		return fmt.Sprintf("nothing wrong with %d orders", r.Accepts)
	}
	var parts []string
	for _, v := range buyers.Verdicts {
		if n := r.Counts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", v, n))
		}
	}
	if n := len(wrongs(r)); n > 0 {
		parts = append(parts, fmt.Sprintf("%d besides", n))
	}
	text := strings.Join(parts, ", ") + fmt.Sprintf(", of %d orders", r.Accepts)
	for _, list := range [][]string{r.Findings, wrongs(r)} {
		if len(list) > 0 {
			first, _, _ := strings.Cut(list[0], "\n")
			return text + "\n    " + first
		}
	}
	return text
}
