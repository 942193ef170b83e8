package main

import (
	"fmt"
	"maps"
	"slices"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/journal"
)

// journalWitnesses are files of journals that an audit believes, beside what running apis report: those of a machine
// that is gone.
type journalWitnesses struct {
	witnesses []audit.Witness
	torn      []string // what could not be read
}

// readWitnesses reads files, and leaves out what Postgres has. A file that can't be read is wrong use: an audit without
// it would say too much.
func (s *stores) readWitnesses(a *app, files []string) (journalWitnesses, error) {
	var all journalWitnesses
	for _, file := range files {
		w := audit.Witness{File: file}
		var found journal.Contents
		var asking error
		err := journal.InChunks(func(each func(pipeline.SalePartition, []pipeline.Accept) error) (err error) {
			found, err = journal.ReadFile(file, each)
			return err
		}, func(at pipeline.SalePartition, accepts []pipeline.Accept) error {
			orders := make([]pipeline.OrderKey, len(accepts))
			for i := range accepts {
				orders[i] = pipeline.OrderKey{SaleID: at.SaleID, OrderID: accepts[i].OrderID}
			}
			var unsettled []pipeline.OrderKey
			unsettled, asking = s.postgres.UnsettledOrders(a.ctx, orders)
			w.Orders = append(w.Orders, unsettled...)
			return asking
		})
		switch {
		case asking != nil:
			return all, asking
		case err != nil:
			return all, usagef("the accept journal %s can't be read: %v", file, err)
		case found.Corrupt > 0:
			all.torn = append(all.torn, fmt.Sprintf("%d bytes of %s are torn or corrupt; what is whole was read",
				found.Corrupt, file))
		}
		all.witnesses = append(all.witnesses, w)
	}
	return all, nil
}

// complete adds to audits what the files say beside them: where they are torn, and, where all sales were audited, the
// receipts of sales that Postgres does not know, those that apis have reported included.
func (j *journalWitnesses) complete(views []view.Audit, all bool, reported map[string]int64) []view.Audit {
	audited := map[string]bool{}
	for i := range views {
		views[i].Notes = append(views[i].Notes, j.torn...)
		audited[views[i].SaleID] = true
	}
	unknown := map[string]int64{}
	if all {
		maps.Copy(unknown, reported)
	}
	for _, w := range j.witnesses {
		for _, o := range w.Orders {
			if all && !audited[o.SaleID] {
				unknown[o.SaleID]++
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		v := view.LostSale(&pipeline.Sale{ID: id}, fmt.Sprintf("Postgres does not know the sale, and the journals hold %d "+
			"receipts of it: are they of another database?", unknown[id]))
		v.LostReceipts = unknown[id]
		views = append(views, v)
	}
	return views
}
