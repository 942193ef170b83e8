package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/lua"
)

// TestWaitlistIsFairUnderLoad: buyers join, leave and order, orders end, units are added, all at once and from many
// sides. The orders made for buyers who waited come in the order of their tickets, without one inversion; a buyer who
// was answered that it has left gets none; nothing is lost or sold twice.
func TestWaitlistIsFairUnderLoad(t *testing.T) {
	f := newFixture(t)
	const units, buyers, sides = 30, 400, 6
	sale := f.openSale(units)
	sale.MaxQuantity, sale.Waitlist = 3, buyers
	f.load(sale)
	for n := range units {
		f.mustAdmit(request(n+1, fmt.Sprint("first-", n+1)))
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	ticket, left := map[string]int64{}, map[string]bool{} // by order id
	var sidesDone sync.WaitGroup
	for side := range sides {
		random := rand.New(rand.NewPCG(uint64(seed), uint64(side)))
		sidesDone.Go(func() {
			for n := side; n < buyers; n += sides {
				user, r := fmt.Sprint("waits-", n), request(10_000+n, fmt.Sprint("waits-", n))
				r.Quantity = 1 + random.IntN(3)
				reply, err := lua.Join(f.ctx, f.rdb, f.saleKeys, r)
				if err != nil || reply.Code != lua.JoinJoined && reply.Code != lua.JoinAvailable {
					t.Errorf("join: %+v, %v", reply, err)
					return
				}
				mu.Lock()
				ticket[r.OrderID] = reply.Entry.Ticket
				mu.Unlock()
				if random.IntN(4) == 0 {
					code, _, _, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
						lua.ReleaseItem{UserID: user, OrderID: r.OrderID})
					if err != nil {
						t.Errorf("leave: %v", err)
					}
					mu.Lock()
					left[r.OrderID] = code == lua.LeaveLeft
					mu.Unlock()
				}
				if random.IntN(2) == 0 {
					f.endSome(random)
				}
				if _, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
					[]lua.AdmitRequest{request(50_000+n, fmt.Sprint("new-", n))}); err != nil {
					t.Errorf("admit: %v", err)
				}
			}
		})
	}
	sidesDone.Wait()
	for f.state().Sale["waiting"] != "0" {
		f.endSome(rand.New(rand.NewPCG(uint64(seed), 99)))
	}
	s := f.state()
	var last, served int64
	inversions := 0
	for _, e := range s.Events {
		n, waited := ticket[e["o"]]
		if left[e["o"]] {
			t.Errorf("%s has left and got an order", e["u"])
		}
		if !waited || n == 0 {
			continue
		}
		served++
		if n < last {
			inversions++
		}
		last = max(last, n)
	}
	accounted := number(s.Sale["stock"])
	for _, text := range s.Buyers {
		slot, err := lua.ParseSlot(text)
		if err != nil {
			t.Fatal(err)
		}
		accounted += int64(slot.Quantity)
	}
	if inversions != 0 || accounted != units || number(s.Sale["stock"]) < 0 || served < buyers/4 {
		t.Errorf("%d served, %d inversions, %d units accounted for of %d", served, inversions, accounted, units)
	}
	t.Logf("%d served, %d inversions", served, inversions)
}

// endSome releases the orders of some buyers, one call for all.
func (f *fixture) endSome(random *rand.Rand) {
	f.Helper()
	buyers := f.hash(f.saleKeys.Buyers)
	users := make([]string, 0, len(buyers))
	for user := range buyers {
		users = append(users, user)
	}
	slices.Sort(users)
	random.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
	var items []lua.ReleaseItem
	for _, user := range users[:min(len(users), 1+random.IntN(2))] {
		slot, err := lua.ParseSlot(buyers[user])
		if err != nil {
			f.Fatal(err)
		}
		items = append(items, lua.ReleaseItem{UserID: user, OrderID: slot.OrderID})
	}
	if len(items) == 0 {
		return
	}
	if _, _, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, plenty, items); err != nil {
		f.Error(err)
	}
}
