package retention

import (
	"fmt"
	"strings"
)

// Holds counts what somebody still has to do about a sale. Its orders are kept until that is done.
type Holds struct {
	Unpaid        int64 // orders that await their payment
	RefundsDue    int64 // orders whose money is to be paid back
	PaymentsDue   int64 // payments that wait for their order, or are to be paid back
	Letters       int64 // dead letters that no operator has resolved
	Releases      int64 // releases that are not settled
	StockReducing bool  // its stock is being reduced
}

// String names what there is; it is empty where nothing holds the sale back.
func (h Holds) String() string {
	var reasons []string
	for _, hold := range []struct {
		count int64
		what  string
	}{
		{h.Unpaid, "orders await payment"},
		{h.RefundsDue, "orders are to be refunded"},
		{h.PaymentsDue, "payments wait, or are to be paid back"},
		{h.Letters, "dead letters wait for an operator"},
		{h.Releases, "releases are not settled"},
	} {
		if hold.count > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", hold.count, hold.what))
		}
	}
	if h.StockReducing {
		reasons = append(reasons, "its stock is being reduced")
	}
	return strings.Join(reasons, "; ")
}
