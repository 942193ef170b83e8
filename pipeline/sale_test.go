package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
)

func TestSaleIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "0": true, "drop-1": true, "9--": true, strings.Repeat("a", 64): true,
		"": false, "-a": false, "A": false, "drop_1": false, "drop 1": false, "drop/1": false, "../x": false, "{p01}": false,
		"a:b": false, "a\x00": false, "\x00": false, "a\n": false, "\na": false, "ä": false, "a.b": false,
		strings.Repeat("a", 65): false, strings.Repeat("a", 1<<20): false,
	} {
		if got := pipeline.ValidSaleID(id); got != want {
			t.Errorf("%.80q: got %t, want %t", id, got, want)
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	const id = "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f"
	for text, want := range map[string]bool{
		id: true, strings.ToUpper(id): true, "00000000-0000-0000-0000-000000000000": true,
		"": false, "7": false, "urn:uuid:" + id: false, "{" + id + "}": false, strings.ReplaceAll(id, "-", ""): false,
		id + "0": false, strings.Replace(id, "f", "g", 1): false, strings.Replace(id, "-", "0", 1): false,
	} {
		if got := pipeline.ValidUUID(text); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
}

func TestUserIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"a", "-", "0", "auth0|5f7c8ec7c33c6c004bbafe82", "me@example.com", "ünïcödé", "日本", "a:b/c*?[x]\\\"'", "👤",
		strings.Repeat("u", 128), strings.Repeat("é", 64),
	} {
		if err := pipeline.ValidateUserID(id); err != nil {
			t.Errorf("%q: got %v, want none", id, err)
		}
	}
	for _, id := range []string{
		"", " ", "a b", "a\tb", "a\n", "\x00", "a\x00b", "\x1b[31m", "a\x7f", "{", "}", "{p01}", "a{b", "a\u00a0b",
		"a\u2028b", "a\u200bb",
		"a\u202eb", "\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("u", 129), strings.Repeat("é", 65),
		strings.Repeat("u", 300),
	} {
		err := pipeline.ValidateUserID(id)
		if pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%q: got %v, want it to be invalid", id, err)
		}
		if err != nil && (len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\x00\x1b\n")) {
			t.Errorf("%q: the error repeats what would corrupt a terminal: %q", id, err)
		}
	}
}

func TestSalesThatBreakARule(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	valid := func() *pipeline.Sale {
		return &pipeline.Sale{
			ID: "drop-1", Title: "A thing", Total: 1, MaxQuantity: 1, OpensAt: noon, ClosesAt: noon.Add(time.Millisecond),
		}
	}
	if err := valid().Validate(); err != nil {
		t.Fatalf("a valid sale: %v", err)
	}
	for _, test := range []struct {
		name  string // what the message must name
		spoil func(*pipeline.Sale)
	}{
		{"sale id", func(s *pipeline.Sale) { s.ID = "" }},
		{"sale id", func(s *pipeline.Sale) { s.ID = "drop 1" }},
		{"title", func(s *pipeline.Sale) { s.Title = "" }},
		{"title", func(s *pipeline.Sale) { s.Title = strings.Repeat("t", 201) }},
		{"title", func(s *pipeline.Sale) { s.Title = "\xff" }},
		{"title", func(s *pipeline.Sale) { s.Title = "a\x00b" }},
		{"title", func(s *pipeline.Sale) { s.Title = "a\nb" }},
		{"stock", func(s *pipeline.Sale) { s.Total = 0 }},
		{"stock", func(s *pipeline.Sale) { s.Total = -1 }},
		{"stock", func(s *pipeline.Sale) { s.Total = pipeline.MaxStock + 1 }},
		{"max quantity", func(s *pipeline.Sale) { s.MaxQuantity = 0 }},
		{"max quantity", func(s *pipeline.Sale) { s.MaxQuantity = -1 }},
		{"max quantity", func(s *pipeline.Sale) { s.MaxQuantity = pipeline.MaxQuantityLimit + 1 }},
		{"closes at", func(s *pipeline.Sale) { s.ClosesAt = s.OpensAt }},
		{"closes at", func(s *pipeline.Sale) { s.ClosesAt = s.OpensAt.Add(-time.Hour) }},
		{"closes at", func(s *pipeline.Sale) { s.ClosesAt = s.OpensAt.Add(time.Millisecond - 1) }}, // Redis keeps ms
		{"opens at", func(s *pipeline.Sale) { s.OpensAt = time.Time{} }},
		{"opens at", func(s *pipeline.Sale) { s.OpensAt = time.UnixMilli(-1) }}, // and counts from 1970
		{"closes at", func(s *pipeline.Sale) { s.ClosesAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"payment window", func(s *pipeline.Sale) { s.PaymentWindow = -1 }},
		{"payment window", func(s *pipeline.Sale) { s.PaymentWindow = pipeline.MaxPaymentWindow + 1 }},
	} {
		sale := valid()
		test.spoil(sale)
		err := sale.Validate()
		if pipeline.KindOf(err) != pipeline.KindInvalid || !strings.Contains(fmt.Sprint(err), test.name) {
			t.Errorf("%+v: got %v, want an error about the %s", sale, err, test.name)
		}
	}
	for _, sale := range []*pipeline.Sale{
		{
			ID: strings.Repeat("a", 64), Title: strings.Repeat("é", 100), Total: pipeline.MaxStock,
			MaxQuantity: pipeline.MaxQuantityLimit,
		},
		{ID: "a", Title: "{<b>}", Total: 1, MaxQuantity: 2, PaymentWindow: pipeline.MaxPaymentWindow},
	} {
		sale.OpensAt, sale.ClosesAt = time.UnixMilli(0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		if err := sale.Validate(); err != nil {
			t.Errorf("%+v: %v", sale, err)
		}
	}
}

// What Validate accepts can be loaded into Redis: else there would be a sale that can never be opened.
func TestEveryValidWindowCanBeLoaded(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	windows := []time.Time{
		{},
		time.UnixMilli(-1), time.UnixMilli(0), time.UnixMicro(1), time.UnixMilli(1),
		time.Now(), time.Now().Add(time.Microsecond),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	created := 0
	for i, opens := range windows {
		for j, closes := range windows {
			sale := &pipeline.Sale{
				ID: fmt.Sprintf("drop-%d-%d", i, j), Title: "A thing", Total: 1, MaxQuantity: 1,
				OpensAt: opens, ClosesAt: closes,
			}
			switch err := r.Publisher.Create(r.Ctx(), sale); pipeline.KindOf(err) {
			case "":
				created++
			case pipeline.KindInvalid:
				if _, err := r.Store.Sale(r.Ctx(), sale.ID); pipeline.KindOf(err) != pipeline.KindNotFound {
					t.Errorf("%s to %s: refused, but it exists", opens, closes)
				}
			default:
				t.Errorf("%s to %s: %v", opens, closes, err)
			}
		}
	}
	if created == 0 {
		t.Error("no window was good enough")
	}
}

func TestPhaseIsWhatABuyerSees(t *testing.T) {
	t.Parallel()
	opens := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	closes := opens.Add(time.Hour)
	for _, test := range []struct {
		state pipeline.SaleState
		at    time.Time
		want  string
	}{
		{pipeline.SaleActive, opens.Add(-1), "scheduled"},
		{pipeline.SaleActive, opens, "open"},
		{pipeline.SaleActive, closes.Add(-1), "open"},
		{pipeline.SaleActive, closes, "closed"},
		{pipeline.SalePaused, opens.Add(-1), "paused"},
		{pipeline.SalePaused, opens, "paused"},
		{pipeline.SalePaused, closes, "closed"},
		{pipeline.SaleClosed, opens.Add(-1), "closed"},
		{pipeline.SaleClosed, opens, "closed"},
	} {
		sale := pipeline.Sale{State: test.state, OpensAt: opens, ClosesAt: closes}
		if got := sale.Phase(test.at); got != test.want {
			t.Errorf("%s at %s: got %s, want %s", test.state, test.at, got, test.want)
		}
	}
}

func TestSharesAddUpToTheTotal(t *testing.T) {
	t.Parallel()
	for partitions := 1; partitions <= 7; partitions++ {
		sale := &pipeline.Sale{}
		for p := range partitions {
			sale.Partitions = append(sale.Partitions, pipeline.Partition((p*5)%7))
		}
		before := make([]int64, partitions)
		for total := range int64(60) {
			var sum int64
			for i, p := range sale.Partitions {
				share := sale.ShareOf(p, total)
				if share < before[i] {
					t.Fatalf("%d partitions: a restock to %d takes units away from %s: %d after %d",
						partitions, total, p, share, before[i])
				}
				if share < total/int64(partitions) || share > total/int64(partitions)+1 {
					t.Fatalf("%d partitions: %s has %d of %d", partitions, p, share, total)
				}
				before[i] = share
				sum += share
			}
			if sum != total {
				t.Fatalf("%d partitions: the shares add up to %d, want %d", partitions, sum, total)
			}
		}
		if got := sale.ShareOf(63, 100); got != 0 {
			t.Errorf("a partition that the sale is not on has a share of %d", got)
		}
	}
}

func TestBuyersAndSalesSpreadEvenly(t *testing.T) {
	t.Parallel()
	sale := &pipeline.Sale{Partitions: []pipeline.Partition{9, 4, 7, 1}}
	buyers, sales := map[pipeline.Partition]int{}, map[pipeline.Partition]int{}
	const n = 20_000
	for i := range n {
		user := fmt.Sprintf("user-%d", i)
		buyers[sale.PartitionOf(user)]++
		for _, p := range pipeline.PlaceSale(fmt.Sprintf("drop-%d", i), 16) {
			sales[p]++
		}
	}
	for _, spread := range []struct {
		counts map[pipeline.Partition]int
		want   int
	}{{buyers, 4}, {sales, 16}} {
		if len(spread.counts) != spread.want {
			t.Errorf("got %d partitions in use, want %d", len(spread.counts), spread.want)
		}
		for p, got := range spread.counts {
			if even := n / spread.want; got < even*9/10 || got > even*11/10 {
				t.Errorf("partition %s has %d of %d, want about %d", p, got, n, even)
			}
		}
	}
}

func TestStatusesThatOccupyStock(t *testing.T) {
	t.Parallel()
	for status, want := range map[pipeline.OrderStatus]bool{
		pipeline.StatusQueued: true, pipeline.StatusAwaitingPayment: true, pipeline.StatusConfirmed: true,
		pipeline.StatusPaid:      true,
		pipeline.StatusCancelled: false, pipeline.StatusExpired: false, pipeline.StatusRejected: false,
		pipeline.StatusRefundDue: false,
		"":                       false, "else": false,
	} {
		if got := status.Live(); got != want {
			t.Errorf("%s: live %t, want %t", status, got, want)
		}
	}
}
