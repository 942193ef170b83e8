package crashpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sluice/internal/faultnet"
	"sluice/lua"
)

// answerLimit bounds one request: it is answered within 2 s, or its api is dead.
const answerLimit = 20 * time.Second

// answer is what a buyer or an operator was answered.
type answer struct {
	status int
	order  string
}

// post sends a request. An error says why there is no answer.
func (r *run) post(url, body string, header map[string]string) (answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.GetBody = nil // it is not sent again behind our back
	request.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		request.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	var said struct {
		OrderID string `json:"order_id"`
	}
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
		return answer{}, fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	return answer{response.StatusCode, said.OrderID}, nil
}

// purchase is an api that takes one order. The buyer who got no answer asks again, with the same key, at another api.
func purchase() *scenario {
	return &scenario{
		name: "api", program: "api",
		steps: []string{
			"http orders",                                                  // asked; answered
			"redis lease", "redis set marker", "redis admit", "redis wait", // numbered, examined, admitted, confirmed
		},
		prepare: func(r *run) { r.openSale() },
		act: func(r *run) {
			r.first, _ = r.order(r.buyers.URL()) // an error says that nobody answered
		},
		done: func(r *run) bool {
			if r.first.status != http.StatusAccepted {
				r.Fatalf("the buyer was answered %+v, want 202", r.first)
			}
			return true
		},
		recover: func(r *run) {
			before := r.slotOf("ann")
			if r.admitted() && before == "" {
				r.Error("the script ran, and the buyer has no slot")
			}
			replacements := r.takeOver("api", "worker")
			again, err := r.order(replacements[0].URL())
			if err != nil || again.status != http.StatusAccepted {
				r.Errorf("asked again: got %+v, %v, want 202", again, err)
			}
			if r.first.order != "" && again.order != r.first.order {
				r.Errorf("answered with order %s first, then with %s", r.first.order, again.order)
			}
			if before != "" && again.order != before {
				r.Errorf("answered with order %s, and the buyer's slot was that of %s", again.order, before)
			}
			r.eventually("everything is settled", r.settled)
			r.same("the order of the answer", r.rows(`select id::text, user_id from orders`),
				[]string{again.order + " ann"})
		},
		check: func(r *run) {
			r.balanced(saleID, "ann")
			r.same("orders", r.ordersOf(), []string{"ann confirmed"})
		},
	}
}

// order asks for a unit, always with the same key.
func (r *run) order(api string) (answer, error) {
	return r.post(api+"/v1/sales/"+saleID+"/orders", `{"quantity":1}`,
		map[string]string{"X-User-Id": "ann", "Idempotency-Key": "one"})
}

// admitted reports whether the script had run when the process was killed.
func (r *run) admitted() bool {
	after := r.killed.moment == faultnet.After
	switch r.killed.label {
	case "redis admit", "http orders":
		return after
	case "redis wait":
		return true
	default:
		return false
	}
}

// slotOf is the order that a buyer's slot is for.
func (r *run) slotOf(user string) string {
	text, err := r.rdb.HGet(r.Context(), keys.Buyers(only, saleID), user).Result()
	if err != nil {
		return ""
	}
	slot, err := lua.ParseSlot(text)
	r.must(err)
	return slot.OrderID
}
