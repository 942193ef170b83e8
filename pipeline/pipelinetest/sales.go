package pipelinetest

import (
	"time"

	"sluice/pipeline"
	"sluice/pipeline/sales"
)

// Catalogue is one that has just been read.
func (r *Rig) Catalogue() *sales.Catalogue {
	r.Helper()
	c := sales.NewCatalogue(r.Store, r.Logger)
	if err := c.Load(r.Ctx()); err != nil {
		r.Fatal(err)
	}
	return c
}

// UsualSale fills in what a test leaves open.
func UsualSale(sale pipeline.Sale) *pipeline.Sale {
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

// CreateSale stores and loads a sale. Where the partitions are given, they are taken as they are.
func (r *Rig) CreateSale(s pipeline.Sale) *pipeline.Sale {
	r.Helper()
	sale := UsualSale(s)
	if len(sale.Partitions) == 0 {
		if err := r.Publisher.Create(r.Ctx(), sale); err != nil {
			r.Fatalf("create sale: %v", err)
		}
	} else {
		if err := r.Store.CreateSale(r.Ctx(), sale); err != nil {
			r.Fatalf("store sale: %v", err)
		}
		if err := r.Publisher.Publish(r.Ctx(), sale); err != nil {
			r.Fatalf("publish sale: %v", err)
		}
	}
	return r.Stored(sale.ID)
}

// Stored is a sale as Postgres defines it now.
func (r *Rig) Stored(id string) *pipeline.Sale {
	r.Helper()
	sale, err := r.Store.Sale(r.Ctx(), id)
	if err != nil {
		r.Fatalf("sale %s: %v", id, err)
	}
	return sale
}
