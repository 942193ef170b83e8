package admission_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

// slowScan makes each scan of buyers take as long as one of a big sale does, and counts them.
type slowScan struct {
	takes time.Duration
	began atomic.Int64
}

func (s *slowScan) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *slowScan) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slowScan) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hscan" {
			s.began.Add(1)
			time.Sleep(s.takes) // this is the scan
		}
		return next(ctx, cmd)
	}
}

func newSlowlyScanned(t *testing.T, takes time.Duration) (*flooded, *slowScan) {
	t.Helper()
	url := testkit.PrivateRedis(t).URL()
	f := newFlooded(t, pipelinetest.Options{RedisURL: url, Sale: pipeline.Sale{Total: 1, MaxQuantity: 1}})
	slow := &slowScan{takes: takes}
	client := testkit.Client(t, url)
	client.AddHook(slow)
	f.Admission = f.NewAdmission(client, admission.Options{})
	return f, slow
}

// scans is how many HSCANs read the buyers of a small sale: those with an order, and those whose order has ended.
const scans = 2

// The buyers of a big sale take longer to read than a memory is kept that nobody asks for.
func TestTheBuyersOfABigSaleAreRead(t *testing.T) {
	t.Parallel()
	f, slow := newSlowlyScanned(t, 2*time.Second)
	f.Admit("ann", 1)
	f.floods(admission.SoldOut)
	if n := slow.began.Load(); n != scans {
		t.Errorf("there were %d scans, want %d", n, scans)
	}
}

// While units come back and are sold elsewhere all the time, reading the buyers again takes a small part of the time.
func TestTheBuyersOfABusySaleAreReadSeldom(t *testing.T) {
	t.Parallel()
	const takes, lasts = 300 * time.Millisecond, 5 * time.Second // the pause after a scan is longer than the test
	f, slow := newSlowlyScanned(t, takes)
	other := f.NewAdmission(f.Redis, admission.Options{})
	holder := f.Admit("ann", 1)
	user := "ann"
	for began, n := time.Now(), 0; time.Since(began) < lasts; n++ {
		f.Release(user, holder.OrderID)
		user = fmt.Sprint("cy-", n)
		d, err := other.Admit(f.Ctx(), f.Sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		if err != nil || d.Result != admission.Accepted {
			t.Fatalf("%s: %+v, %v", user, d, err)
		}
		holder = d.Receipt
		f.crowd(admission.SoldOut)
	}
	if n := slow.began.Load(); n == 0 || n > 2*scans {
		t.Errorf("there were %d scans in %s, %s each, want those of one reading or two", n, lasts, takes)
	}
}
