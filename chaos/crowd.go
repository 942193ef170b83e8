package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/buyers"
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

// dropRefusals is how many buyers get sold-out before the next drop is what everybody wants.
const dropRefusals = 300

// crowd is all the buyers.
type crowd struct {
	opts   Options
	client *buyers.Client
	drops  []string // sales that sell out one after the other

	next    atomic.Uint32 // number of the last buyer
	drop    atomic.Int32  // index of the drop that is wanted now
	refused atomic.Int32  // sold-out answers that it gave
}

// shop has buyers order until the context ends, then lets those under way finish.
func (c *crowd) shop(ctx context.Context) {
	var clients sync.WaitGroup
	for i := range c.opts.Clients {
		clients.Go(func() { c.serveBuyers(ctx, rand.New(rand.NewPCG(c.opts.Seed, 1000+uint64(i)))) })
	}
	clients.Wait()
}

// serveBuyers is one buyer after the other, at one client's share of the rate.
func (c *crowd) serveBuyers(ctx context.Context, random *rand.Rand) {
	period := time.Second * time.Duration(c.opts.Clients) / time.Duration(c.opts.Rate)
	api := random.IntN(apiCount)
	for ctx.Err() == nil {
		began := time.Now()
		if random.Float64() < wanderShare {
			api = random.IntN(apiCount)
		}
		var requests int
		requests, api = c.buy(api, random)
		buyers.Sleep(ctx, period*time.Duration(requests)-time.Since(began))
	}
}

// buy is one buyer from the first request to the last. It returns how many there were, and which API answered last. It
// has no context: a buyer who has begun wants to know.
func (c *crowd) buy(api int, random *rand.Rand) (requests, answered int) {
	r := c.buyer(random)
	order := func(api int, r buyers.Request) {
		c.moveOn(r, c.client.Order(context.Background(), api, r))
		requests++
	}
	if random.Float64() < abandonShare {
		abandoned := r
		abandoned.Abandon = true
		order(api, abandoned)
	}
	if random.Float64() < doubleShare {
		var second sync.WaitGroup
		other := api + 1
		second.Go(func() { c.moveOn(r, c.client.Order(context.Background(), other, r)) })
		defer second.Wait()
		requests++
	}
	outcome, sent := c.client.Ask(context.Background(), api, r)
	c.moveOn(r, outcome)
	requests, api = requests+sent, (api+sent-1)%apiCount
	if outcome != buyers.Accepted {
		return requests, api
	}
	if random.Float64() < againShare {
		order(api+1, r)
	}
	if random.Float64() < anewShare {
		anew := r // r itself may still be on its way a second time
		anew.Key = buyers.NoKey
		order(api+1, anew)
	}
	return requests, api
}

func (c *crowd) buyer(random *rand.Rand) buyers.Request {
	r := buyers.Request{Sale: bigSale, Buyer: c.next.Add(1), Quantity: 1}
	switch {
	case random.Float64() < dropShare:
		r.Sale = c.drops[min(int(c.drop.Load()), len(c.drops)-1)]
	case random.Float64() < severalShare:
		r.Quantity = uint8(2 + random.IntN(2))
	}
	return r
}

// moveOn leads the crowd to the next drop once enough of it has come too late.
func (c *crowd) moveOn(r buyers.Request, o buyers.Outcome) {
	if o != buyers.SoldOut {
		return
	}
	if r.Sale == bigSale {
		c.client.History.Strangef("%s got sold-out from the big sale", r.User())
		return
	}
	drop := c.drop.Load()
	if int(drop) < len(c.drops) && c.drops[drop] == r.Sale && c.refused.Add(1) >= dropRefusals &&
		c.drop.CompareAndSwap(drop, drop+1) {
		c.refused.Store(0)
	}
}
