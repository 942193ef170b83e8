package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/config"
	"sluice/internal/table"
)

type doctorCmd struct{}

// finding is the result of one check. Advice says what to do when it is not OK.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// Run examines everything it can reach: one server that is down hides nothing about the other.
func (c *doctorCmd) Run(a *app) error {
	cfg, settingsErr := a.settings.load(commandDefaults())
	if settingsErr != nil && (cfg.DatabaseURL == "" || cfg.RedisURL == "") {
		return settingsErr // there is nothing to examine
	}
	d := &doctor{cfg: cfg}
	d.examine(a.ctx, settingsErr)
	if err := a.ctx.Err(); err != nil {
		return err
	}
	var err error
	if a.json {
		err = a.printJSON(d.findings)
	} else {
		err = d.print(a)
	}
	if err == nil && d.foundWrong() {
		return errFound
	}
	return err
}

// doctor collects findings.
type doctor struct {
	cfg      config.Config
	findings []finding
}

func (d *doctor) examine(ctx context.Context, settingsErr error) {
	d.settings(settingsErr)
	d.certificates()
	d.redis(ctx)
	d.postgres(ctx)
}

// note adds the result of a check.
func (d *doctor) note(ok bool, check, found, advice string) {
	f := finding{Check: check, OK: ok, Found: found}
	if !ok {
		f.Advice = advice
	}
	d.findings = append(d.findings, f)
}

// failed adds a check that could not be made.
func (d *doctor) failed(check string, err error, advice string) {
	d.note(false, check, sentence(err), advice)
}

func (d *doctor) foundWrong() bool {
	return slices.ContainsFunc(d.findings, func(f finding) bool { return !f.OK })
}

func (d *doctor) print(a *app) error {
	t := table.New("", "CHECK", "FOUND")
	for _, f := range d.findings {
		t.Row(mark(f.OK), f.Check, f.Found)
	}
	if err := t.Write(a.out, ""); err != nil {
		return err
	}
	if !d.foundWrong() {
		sayf(a.out, "\nAll is well.")
		return nil
	}
	sayf(a.out, "\nWhat to do:")
	for _, f := range d.findings {
		if !f.OK {
			sayf(a.out, "  %s: %s", f.Check, f.Advice)
		}
	}
	return nil
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

// settings reports what package config said about them. A server would refuse to start; here the rest is examined too.
func (d *doctor) settings(err error) {
	const check = "settings"
	if err != nil {
		d.note(false, check, "no program starts with them", "correct "+strings.TrimPrefix(sentence(err),
			"these settings are wrong: "))
		return
	}
	// the deadline ladder, which keeps a slow worker from being overtaken in a transaction
	w := d.cfg.Worker.WithDefaults()
	d.note(true, check, fmt.Sprintf("batch deadline %s < lock %s < claim idle %s", w.BatchDeadline, w.LockTTL,
		w.ClaimMinIdle), "")
}
