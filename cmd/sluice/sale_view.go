package main

import (
	"context"
	"strconv"
	"time"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// saleView is a sale in JSON: its definition in Postgres, and beside it what Redis has.
type saleView struct {
	view.Sale
	Partitions []partitionView `json:"partitions"`

	opensAt, closesAt time.Time
}

// partitionView is a sale's hash on one partition, as it stands in Redis. Loaded is false where there is none.
type partitionView struct {
	Partition string `json:"partition"`
	Loaded    bool   `json:"loaded"`
	Stock     int64  `json:"stock"`
	Total     int64  `json:"total"`
	State     string `json:"state"`
	Version   int64  `json:"version"`
	Accepted  int64  `json:"accepted"`
	Released  int64  `json:"released"`
	Buyers    int64  `json:"buyers"`
	Waiting   int64  `json:"waiting"` // entries of the waitlist
}

func (s *stores) viewSale(ctx context.Context, sale *pipeline.Sale, now time.Time) saleView {
	v := saleView{opensAt: sale.OpensAt, closesAt: sale.ClosesAt}
	var stock int64
	loaded := true
	for _, p := range sale.Partitions {
		part := s.viewPartition(ctx, sale.ID, p)
		v.Partitions = append(v.Partitions, part)
		stock += part.Stock
		loaded = loaded && part.Loaded
	}
	var remaining *int64
	if loaded {
		remaining = &stock
	}
	v.Sale = view.NewSale(sale, now, remaining)
	return v
}

// viewPartition shows a sale as not loaded also where Redis does not answer: the definition is worth showing either
// way.
func (s *stores) viewPartition(ctx context.Context, saleID string, p pipeline.Partition) partitionView {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	v := partitionView{Partition: p.String()}
	pipe := s.redis.Pipeline()
	hash := pipe.HGetAll(ctx, s.keys.Sale(p, saleID))
	buyers := pipe.HLen(ctx, s.keys.Buyers(p, saleID))
	waiting := pipe.ZCard(ctx, s.keys.Waitlist(p, saleID))
	if _, err := pipe.Exec(ctx); err != nil || len(hash.Val()) == 0 {
		return v
	}
	v.Loaded, v.State, v.Buyers, v.Waiting = true, hash.Val()["state"], buyers.Val(), waiting.Val()
	for field, into := range map[string]*int64{
		"stock": &v.Stock, "total": &v.Total, "version": &v.Version, "accepted": &v.Accepted, "released": &v.Released,
	} {
		n, err := strconv.ParseInt(hash.Val()[field], 10, 64)
		if err != nil {
			v.Loaded = false // what can't be read can't be relied on
			continue
		}
		*into = n
	}
	return v
}

// printSale shows a sale after what was done to it; done is empty when it was only looked at. Other processes may have
// changed it since, so it is read again.
func (a *app) printSale(s *stores, sale *pipeline.Sale, done string) error {
	now, err := s.now(a.ctx)
	if err != nil {
		return err
	}
	if sale, err = s.postgres.Sale(a.ctx, sale.ID); err != nil {
		return err
	}
	v := s.viewSale(a.ctx, sale, now)
	if a.json {
		return a.printJSON(v)
	}
	if done != "" {
		sayf(a.out, "Sale %s is %s.", v.ID, done)
	}
	t := table.New("", "")
	t.Row("title", v.Title)
	t.Row("phase", v.Phase)
	t.Row("units",
		table.Number(v.Total)+" in all, "+orUnknown(v.Remaining)+" in stock, "+table.Number(v.Sold)+" in orders")
	t.Row("per buyer", "1 order of at most "+table.Number(int64(v.MaxQuantity)))
	if v.LimitGroup != nil {
		t.Row("with others", table.Number(int64(*v.GroupLimit))+" units in all sales of group "+*v.LimitGroup)
	}
	t.Row("opens", shortTime(v.opensAt))
	t.Row("closes", shortTime(v.closesAt))
	t.Row("payment", paymentText(sale.PaymentWindow))
	t.Row("price", priceText(sale))
	t.Row("waitlist", waitlistText(&v))
	if v.EntryTicket {
		t.Row("entry ticket", "needed; buyers are let in over "+sale.EntrySpread.String()+" after the opening")
	}
	t.Row("version", v.Version)
	if v.Note != "" {
		t.Row("note", table.Clean(v.Note))
	}
	if v.ReducingTo != nil {
		t.Row("reduction", "to "+table.Number(*v.ReducingTo)+" units, under way")
	}
	if v.RetiredAt != nil {
		t.Row("in Redis", "no longer, since "+shortTime(sale.RetiredAt)+": it is over")
		if v.OrdersDroppedAt != nil {
			t.Row("orders", "dropped, since "+shortTime(sale.OrdersDroppedAt)+": sums are kept")
		}
		return t.Write(a.out, "  ")
	}
	for _, p := range v.Partitions {
		t.Row("in Redis", p.text())
	}
	return t.Write(a.out, "  ")
}

func (p *partitionView) text() string {
	if !p.Loaded {
		return p.Partition + ": not loaded"
	}
	return p.Partition + ": " + p.State + ", " + table.Number(p.Stock) + " of " + table.Number(p.Total) + " in stock, " +
		table.Number(p.Accepted) + " accepted, " + table.Number(p.Released) + " given back, version " +
		table.Number(p.Version)
}

func waitlistText(v *saleView) string {
	if v.Waitlist == 0 {
		return "none"
	}
	var waiting int64
	for _, p := range v.Partitions {
		waiting += p.Waiting
	}
	return table.Number(waiting) + " waiting, of at most " + table.Number(v.Waitlist)
}

func paymentText(window time.Duration) string {
	if window == 0 {
		return "none: orders are confirmed at once"
	}
	return "within " + window.String()
}

func priceText(sale *pipeline.Sale) string {
	switch {
	case sale.UnitPrice > 0:
		text := payments.MoneyText(sale.UnitPrice, sale.Currency) + " per unit; other amounts are refused"
		if n := len(sale.EarlierPrices); n > 0 {
			text += "; since " + shortTime(time.UnixMilli(sale.EarlierPrices[n-1].UntilMS)) + ", earlier orders keep theirs"
		}
		return text
	case sale.PaymentWindow == 0:
		return "none"
	default:
		return "none: what is paid is recorded, and not compared"
	}
}

func orUnknown(n *int64) string {
	if n == nil {
		return "?"
	}
	return table.Number(*n)
}
