package pipeline_test

import (
	"time"

	"sluice/pipeline"
)

// catalogue is one that has just been read.
func (r *rig) catalogue() *pipeline.Catalogue {
	r.Helper()
	c := pipeline.NewCatalogue(r.store, r.log)
	if err := c.Load(r.ctx()); err != nil {
		r.Fatal(err)
	}
	return c
}

// usualSale fills in what a test leaves open.
func usualSale(sale pipeline.Sale) *pipeline.Sale {
	if sale.ID == "" {
		sale.ID = "drop-1"
	}
	if sale.Title == "" {
		sale.Title = "A thing"
	}
	if sale.Total == 0 {
		sale.Total = 100
	}
	if sale.MaxQuantity == 0 {
		sale.MaxQuantity = 10
	}
	if sale.OpensAt.IsZero() {
		sale.OpensAt = time.Now().Add(-time.Hour)
	}
	if sale.ClosesAt.IsZero() {
		sale.ClosesAt = time.Now().Add(time.Hour)
	}
	return &sale
}

// createSale stores and loads a sale. Where the partitions are given, they are taken as they are.
func (r *rig) createSale(s pipeline.Sale) *pipeline.Sale {
	r.Helper()
	sale := usualSale(s)
	if len(sale.Partitions) == 0 {
		if err := r.publisher.Create(r.ctx(), sale); err != nil {
			r.Fatalf("create sale: %v", err)
		}
	} else {
		if err := r.store.CreateSale(r.ctx(), sale); err != nil {
			r.Fatalf("store sale: %v", err)
		}
		if err := r.publisher.Publish(r.ctx(), sale); err != nil {
			r.Fatalf("publish sale: %v", err)
		}
	}
	return r.stored(sale.ID)
}

// stored is a sale as Postgres defines it now.
func (r *rig) stored(id string) *pipeline.Sale {
	r.Helper()
	sale, err := r.store.Sale(r.ctx(), id)
	if err != nil {
		r.Fatalf("sale %s: %v", id, err)
	}
	return sale
}
