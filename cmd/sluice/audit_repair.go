package main

import (
	"context"
	"slices"

	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/recovery"
)

// repair shows how what audits find wrong would be repaired, or repairs it. It ends with errFound when anything is
// wrong afterwards.
func (c *auditCmd) repair(a *app, s *stores) error {
	views, err := s.repairs(a, string(c.Sale), c.Apply)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(views)
	} else {
		err = c.printRepairs(a, views)
	}
	if err == nil && slices.ContainsFunc(views, func(v view.Repair) bool { return !lastAudit(&v).Clean }) {
		return errFound
	}
	return err
}

func lastAudit(v *view.Repair) *view.Audit {
	if v.Left != nil {
		return v.Left
	}
	return &v.Found
}

// repairs repairs one sale, or all. A sale that is missing in Redis is a finding, which only a rebuild repairs.
func (s *stores) repairs(a *app, only string, apply bool) ([]view.Repair, error) {
	repairer := s.parts(process.NewLogger(a.err, s.cfg)).Repairer()
	views := []view.Repair{}
	err := s.oneOrEachSale(a.ctx, only, func(sale *pipeline.Sale) error {
		v, err := repairOne(a.ctx, repairer, sale, apply)
		views = append(views, v)
		return err
	})
	return views, err
}

func repairOne(ctx context.Context, repairer *recovery.Repairer, sale *pipeline.Sale, apply bool) (view.Repair, error) {
	report, err := repairer.Repair(ctx, sale.ID, actor(), apply)
	if pipeline.KindOf(err) == pipeline.KindNotLoaded {
		return view.Repair{
			Found:   view.LostSale(sale, sentence(err)+": see sluice rebuild"),
			Rebuilt: []pipeline.RebuildReport{},
		}, nil
	}
	if pipeline.KindOf(err) == pipeline.KindConflict { // nothing could be proved of a sale that changed all the time
		err = idempotency.ForNow(err)
	}
	if err != nil {
		return view.Repair{}, err
	}
	return view.NewRepair(&report), nil
}

func (c *auditCmd) printRepairs(a *app, views []view.Repair) error {
	audits := make([]view.Audit, len(views))
	var rebuilt []pipeline.RebuildReport
	var kept int64
	for i, v := range views {
		audits[i] = *lastAudit(&v)
		rebuilt = append(rebuilt, v.Rebuilt...)
		kept += v.Kept
	}
	if err := printAudits(a.out, audits, ""); err != nil {
		return err
	}
	if len(rebuilt) == 0 {
		sayf(a.out, "Nothing in Redis needs a repair.")
		return nil
	}
	sayf(a.out, "")
	if err := rebuildTable(rebuilt).Write(a.out, ""); err != nil {
		return err
	}
	if kept > 0 {
		sayf(a.out, "%s accepts of which only their buyers' slots were left become the orders that were promised.",
			table.Number(kept))
	}
	if !c.Apply {
		sayf(a.out, "Nothing was changed. --apply does it.")
	}
	return nil
}
