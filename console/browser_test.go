package console_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// shop makes the sales of the stories: one that is about to sell out, and others beside it.
func shop(t *testing.T) *rig {
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{
		Title: "Lamp No. 7", Total: 120, MaxQuantity: 2, PaymentWindow: 15 * time.Minute, UnitPrice: 4990, Currency: "EUR",
		Waitlist: 500,
	}})
	lamp, now := r.Sale, time.Now()
	r.CreateSale(pipeline.Sale{
		ID: "poster-3", Title: "Poster No. 3, signed", Total: 20_000, OpensAt: now.Add(-time.Minute), ClosesAt: now.Add(5 * time.Hour),
	})
	r.CreateSale(pipeline.Sale{
		ID: "chair-1", Title: "Chair No. 1", Total: 40, OpensAt: now.Add(26 * time.Hour), ClosesAt: now.Add(28 * time.Hour),
	})
	r.Sale = lamp
	r.reload()
	return r
}

// work runs a worker with the jobs that give units back and serve the waitlist.
func (r *rig) work() *pipelinetest.RunningWorker {
	parts := process.NewParts(r.Redis, r.WorkerStore(), r.Options.Partitions, r.Logger)
	parts.Keys = r.Keys
	return r.StartWorker(r.Store, worker.Options{}, parts.Releaser().Job(), parts.HandOver().Job(r.catalogue))
}

// crowd orders in a sale until it is told to stop, some orders a second.
func (r *rig) crowd(saleID string) (stop func()) {
	sale := r.Stored(saleID)
	end, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for n := 0; ; n++ {
			for i := range 8 {
				done.Go(func() {
					// What becomes of it is not the crowd's concern.
					_, _ = r.Admission.Admit(r.Ctx(), sale, pipeline.OrderRequest{
						UserID: fmt.Sprintf("crowd-%d-%d", n, i), Quantity: 1,
					})
				})
			}
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() {
		close(end)
		done.Wait()
	}
}

// TestAStoryInABrowser: from the opening to the close, as somebody sees and presses it.
func TestAStoryInABrowser(t *testing.T) {
	path := requireChromium(t)
	t.Parallel()
	r := shop(t)
	c := openChromium(r, path)
	_, token := r.token("ann", operator.Operate)

	c.open("/console/orders")
	c.accessible("sign-in")
	c.shoot("sign-in")
	c.run("sign in", chromedp.SendKeys("#token", token+kb.Enter), chromedp.WaitVisible("#find"))
	c.sees("There is no such order")
	c.open("/console/")
	c.sees("No worker is alive")
	c.sees("Lamp No. 7")
	c.shoot("no-worker")
	r.work()
	c.sees("All is well") // by itself: nobody has reloaded the page
	var receipts []admission.Receipt
	stop := r.crowd("poster-3")
	receipts = append(receipts, r.AdmitMany("buyer", 60)...)
	r.Settled()
	for _, receipt := range receipts[:38] {
		r.pay(receipt.OrderID)
	}
	c.sees("drop-1 open 60 120")
	c.accessible("overview")
	if shots != "" {
		c.run("let rates be known", chromedp.Sleep(3*time.Second))
	}
	c.shoot("overview")
	stop()
	r.AdmitMany("late", 60)
	for i := range 7 {
		r.Joins(r.Waitlist(), fmt.Sprintf("waiting-%d", i), 1)
	}
	c.sees("sold out")
	r.Settled()

	c.run("the sale", chromedp.Click(`a[href="/console/sales/drop-1"]`), chromedp.WaitVisible("#units"))
	c.sees("7 buyers on the waitlist")
	c.sees("awaiting payment 82")
	c.accessible("sale")
	c.shoot("sale")
	c.open("/console/sales/drop-1/waitlist")
	c.sees("7 buyers")
	c.accessible("waitlist")
	c.shoot("waitlist")
	c.open("/console/sales/drop-1")
	c.run("plan a pause, with the keyboard",
		chromedp.Focus(`a[href$="/change/pause"]`), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#reason"))
	c.sees("Nobody loses an order")
	c.accessible("dry run")
	c.shoot("dry-run")
	c.run("pause", chromedp.SendKeys("#reason", "the lamps are being counted"+kb.Enter), chromedp.WaitVisible(`.note.good`))
	c.sees("The sale is paused.")
	c.sees("“the lamps are being counted”")
	if got := r.stored("drop-1").State; got != pipeline.SalePaused {
		t.Fatalf("the sale is %s", got)
	}

	number := strconv.FormatInt(receipts[0].Number, 10)
	c.run("find an order", chromedp.SendKeys("#find", number+kb.Enter), chromedp.WaitVisible(".timeline"))
	c.sees("It is paid, and stands.")
	c.sees("buyer-")
	c.accessible("order")
	c.shoot("order")

	c.open("/console/sales/drop-1/change/restock")
	c.accessible("ask")
	c.run("restock", chromedp.SendKeys("#in-add", "5"+kb.Enter), chromedp.WaitVisible("#reason"))
	c.sees("7 buyers are on it")
	c.run("restock", chromedp.SendKeys("#reason", "five were found"+kb.Enter), chromedp.WaitVisible(`.note.good`))
	c.sees("The units are added.")
	c.open("/console/sales/drop-1/change/resume")
	c.run("resume", chromedp.SendKeys("#reason", "counted"+kb.Enter), chromedp.WaitVisible(`.note.good`))
	c.sees("2 buyers on the waitlist") // five of seven were served
	c.story()
	c.noComplaints()
}

// story ends the story: the close, and the pages beside it.
func (c *chromium) story() {
	c.Helper()
	c.open("/console/sales/drop-1/change/close")
	c.shoot("close")
	c.run("close without the id typed",
		chromedp.SendKeys("#reason", "it is over"), chromedp.SendKeys("#typed", "drop-2"), chromedp.Click("button.danger"))
	c.sees("what you typed is not")
	c.open("/console/sales/drop-1/change/close")
	c.run("close", chromedp.SendKeys("#reason", "it is over"), chromedp.SendKeys("#typed", "drop-1"),
		chromedp.Click("button.danger"), chromedp.WaitVisible(`.note.good`))
	c.sees("An operator closed it; that is final.")
	letter := c.bury(map[string]any{"s": "drop-1", "u": "buyer-9", "q": "two", "v": "1"}, `field q: "two" is no number`)
	for _, page := range []string{
		"/console/sales/drop-1/audit", "/console/orders", "/console/log", "/console/dead-letters", letter, "/console/workers",
		"/console/payments", "/console/endpoints", "/console/settings", "/console/nowhere",
	} {
		c.open(page)
		name := page[strings.LastIndex(page, "/")+1:]
		if page == letter {
			name = "dead-letter"
		}
		c.accessible(name)
		if name != "nowhere" {
			c.shoot(name)
		}
	}
	c.run("sign out", chromedp.Click(".who button"), chromedp.WaitVisible("#token"))
}

// TestWithoutJavaScript: everything works, also the changes.
func TestWithoutJavaScript(t *testing.T) {
	path := requireChromium(t)
	t.Parallel()
	r := shop(t)
	c := openChromium(r, path)
	_, token := r.token("ann", operator.Operate)
	c.run("no scripts", tell(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	c.run("sign in", chromedp.Navigate(r.url+"/console/sales/drop-1/change/pause"), chromedp.WaitVisible("#token"),
		chromedp.SendKeys("#token", token+kb.Enter), chromedp.WaitVisible("#reason"),
		chromedp.SendKeys("#reason", "without a script"+kb.Enter), chromedp.WaitVisible(".note.good"))
	if got := r.stored("drop-1").State; got != pipeline.SalePaused {
		t.Errorf("the sale is %s", got)
	}
	c.run("the overview reloads", chromedp.Navigate(r.url+"/console/"), chromedp.WaitVisible("#verdict"))
	resumed := pipeline.SaleActive
	_, err := r.Publisher.Change(r.Ctx(), "drop-1", "cli:test", pipeline.SaleChange{State: &resumed})
	must(t, err)
	r.reload()
	c.run("by itself", chromedp.WaitVisible(`//tr[contains(., "drop-1")]//span[text()="open"]`))
}
