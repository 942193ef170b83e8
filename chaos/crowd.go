package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// What buyers do, as shares of them.
const (
	dropShare    = 0.12 // want something that sells out
	severalShare = 0.2  // of the others want 2 or 3 units
	doubleShare  = 0.05 // click twice: the same request to another API at the same moment
	againShare   = 0.06 // send the same request again once they have an order
	anewShare    = 0.06 // try for a second order
	wanderShare  = 0.1  // go to any API; the others to where the last answer came from
	abandonShare = 0.03 // leave before the first answer, and come back with the same key
)

const (
	attempts      = 9 // of one buyer until there is an answer that says yes or no
	firstPause    = 50 * time.Millisecond
	longestPause  = 2 * time.Second
	abandonWithin = 3 * time.Millisecond // about as long as an answer takes
	dropRefusals  = 300                  // buyers who are told sold-out before the next drop is what everybody wants
)

// crowd is all the buyers.
type crowd struct {
	opts    Options
	client  *client
	history *history
	drops   int // sales 1 to drops sell out one after the other; sale 0 never does

	next    atomic.Uint32 // number of the last buyer
	drop    atomic.Int32  // index of the drop that is wanted now, from 0
	refused atomic.Int32  // sold-out answers that it gave
}

// run has buyers order until the context ends, then lets those under way finish.
func (c *crowd) run(ctx context.Context) {
	var clients sync.WaitGroup
	for i := range c.opts.Clients {
		clients.Go(func() { c.shop(ctx, rand.New(rand.NewPCG(c.opts.Seed, 1000+uint64(i)))) })
	}
	clients.Wait()
}

// shop plays one buyer after the other, at this client's share of the rate.
func (c *crowd) shop(ctx context.Context, random *rand.Rand) {
	period := time.Second * time.Duration(c.opts.Clients) / time.Duration(c.opts.Rate)
	api := random.IntN(apiCount)
	for ctx.Err() == nil {
		began := time.Now()
		if random.Float64() < wanderShare {
			api = random.IntN(apiCount)
		}
		var requests int
		requests, api = c.buy(api, random)
		sleep(ctx, period*time.Duration(requests)-time.Since(began))
	}
}

// buy plays one buyer from the first request to the last. It returns how many there were, and which API answered last. It
// has no context: whoever has begun wants to know.
func (c *crowd) buy(api int, random *rand.Rand) (requests, answered int) {
	r := c.buyer(random)
	if random.Float64() < abandonShare {
		c.abandon(api, r, random)
		requests++
	}
	if random.Float64() < doubleShare {
		var second sync.WaitGroup
		other := api + 1
		second.Go(func() { c.ask(other, r) })
		defer second.Wait()
		requests++
	}
	got := toldNothing
	pause := firstPause
	for range attempts {
		got = c.ask(api, r)
		requests++
		if got != toldNothing {
			break
		}
		api = (api + 1) % apiCount // a balancer sends a repeated request elsewhere
		time.Sleep(pause/2 + time.Duration(random.Int64N(int64(pause))))
		pause = min(2*pause, longestPause)
	}
	if got != toldAccepted {
		return requests, api
	}
	if random.Float64() < againShare {
		c.ask(api+1, r)
		requests++
	}
	if random.Float64() < anewShare {
		r.keyed = false
		c.ask(api+1, r)
		requests++
	}
	return requests, api
}

func (c *crowd) buyer(random *rand.Rand) request {
	r := request{buyer: c.next.Add(1), quantity: 1, keyed: true}
	switch {
	case random.Float64() < dropShare:
		r.sale = uint8(1 + min(int(c.drop.Load()), c.drops-1))
	case random.Float64() < severalShare:
		r.quantity = uint8(2 + random.IntN(2))
	}
	return r
}

// abandon sends a request and leaves at some moment after: it may well be carried out.
func (c *crowd) abandon(api int, r request, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(abandonWithin))))
	defer cancel()
	c.askWithin(ctx, api, r)
}

func (c *crowd) ask(api int, r request) told { return c.askWithin(context.Background(), api, r) }

// askWithin sends one request and writes down what came of it.
func (c *crowd) askWithin(ctx context.Context, api int, r request) told {
	a, err := c.client.send(ctx, api, r)
	f := fact{buyer: r.buyer, sale: r.sale, quantity: r.quantity, keyed: r.keyed, order: a.order, number: a.number}
	if err == nil {
		f.told = c.understand(r, a)
	}
	c.history.note(f)
	if f.told == toldSoldOut {
		c.soldOut(r.sale)
	}
	return f.told
}

// patience are the answers that ask to come again.
var patience = map[string]bool{
	"overloaded": true, "backlog-full": true, "store-unavailable": true, "sale-not-loaded": true,
}

// understand sorts an answer, and writes down those that nobody should get.
func (c *crowd) understand(r request, a answer) told {
	switch {
	case a.status == http.StatusAccepted && a.order != uuid.Nil && a.number > 0:
		if a.durability != "fsync" || a.quantity != int(r.quantity) {
			c.history.wonder("%s asked for %d and got a receipt for %d, durability %s", userOf(r.buyer), r.quantity, a.quantity, a.durability)
		}
		return toldAccepted
	case a.status == http.StatusConflict && a.code == "already-ordered" && a.order != uuid.Nil:
		return toldNamed
	case a.status == http.StatusConflict && a.code == "sold-out":
		if r.sale == 0 {
			c.history.wonder("%s was told that the big sale is sold out", userOf(r.buyer))
		}
		return toldSoldOut
	case a.status == http.StatusServiceUnavailable && patience[a.code]:
		return toldNothing
	}
	c.history.wonder("%s got status %d %s", userOf(r.buyer), a.status, a.code)
	return toldNothing
}

// soldOut moves the crowd on to the next drop once enough of it has come too late.
func (c *crowd) soldOut(sale uint8) {
	drop := int32(sale) - 1
	if drop == c.drop.Load() && c.refused.Add(1) >= dropRefusals && c.drop.CompareAndSwap(drop, drop+1) {
		c.refused.Store(0)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
