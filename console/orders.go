package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

// ordersView are orders that were found, or the newest.
type ordersView struct {
	Text     string
	Sale     string
	Statuses []statusLink
	Status   pipeline.OrderStatus
	Rows     []foundOrder
	Next     string
	Tried    []string // what the text was taken for
}

type statusLink struct {
	Status pipeline.OrderStatus
	Path   string
	On     bool
}

// foundOrder is an order with what it was found by.
type foundOrder struct {
	lifecycle.ListedOrder
	By string
}

// findOrders finds orders by any id that somebody has: of the order, its number, its buyer, its payment.
func (c *console) findOrders(q *request) error {
	form := q.URL.Query()
	v := ordersView{
		Text: strings.TrimSpace(form.Get("q")), Sale: strings.TrimSpace(form.Get("sale")),
		Status: pipeline.OrderStatus(form.Get("status")),
	}
	filter := lifecycle.OrderFilter{SaleID: v.Sale, Limit: listed}
	if v.Status != "" {
		filter.Statuses = []pipeline.OrderStatus{v.Status}
	}
	var err error
	if filter.After, err = lifecycle.OrderPositionOf(form.Get("after")); err != nil {
		return err
	}
	if v.Text != "" {
		err = c.find(q.Context(), filter, &v)
	} else {
		err = c.page(q.Context(), filter, &v, form)
	}
	if err != nil {
		return err
	}
	if len(v.Rows) == 0 && pipeline.ValidUUID(v.Text) {
		if sale := c.saleOfQueued(q.Context(), v.Text); sale != "" {
			return q.redirect(root + "sales/" + sale + "/orders/" + strings.ToLower(v.Text))
		}
	}
	if len(v.Rows) == 1 && v.Rows[0].By != "" && form.Get("status") == "" {
		return q.redirect(root + "sales/" + v.Rows[0].SaleID + "/orders/" + v.Rows[0].ID)
	}
	for _, status := range append([]pipeline.OrderStatus{""}, lifecycle.ListedStatuses...) {
		to := url.Values{}
		for name, value := range map[string]string{"q": v.Text, "sale": v.Sale, "status": string(status)} {
			if value != "" {
				to.Set(name, value)
			}
		}
		v.Statuses = append(v.Statuses, statusLink{status, root + "orders?" + to.Encode(), status == v.Status})
	}
	return q.render(http.StatusOK, "orders", page{Title: "Orders", Section: "Orders", Body: v})
}

func (c *console) page(ctx context.Context, filter lifecycle.OrderFilter, v *ordersView, form url.Values) error {
	found, err := c.Store.Orders(ctx, filter)
	if err != nil {
		return err
	}
	for _, o := range found.Orders {
		v.Rows = append(v.Rows, foundOrder{ListedOrder: o})
	}
	if cursor := found.Next.Cursor(); cursor != "" {
		form.Set("after", cursor)
		v.Next = root + "orders?" + form.Encode()
	}
	return nil
}

// find takes the text for everything that it can be.
func (c *console) find(ctx context.Context, filter lifecycle.OrderFilter, v *ordersView) error {
	tries := []struct {
		by string
		as func(*lifecycle.OrderFilter)
		ok bool
	}{
		{"order id", func(f *lifecycle.OrderFilter) { f.OrderID = v.Text }, pipeline.ValidUUID(v.Text)},
		{"order number", func(f *lifecycle.OrderFilter) {
			f.Number, _ = strconv.ParseInt(v.Text, 10, 64) // it is one
		}, isNumber(v.Text)},
		{"buyer", func(f *lifecycle.OrderFilter) { f.UserID = v.Text }, pipeline.ValidateUserID(v.Text) == nil},
		{"payment id", func(f *lifecycle.OrderFilter) { f.PaymentID = v.Text }, true},
	}
	for _, try := range tries {
		one := filter
		if try.as(&one); !try.ok || one.Validate() != nil {
			continue
		}
		v.Tried = append(v.Tried, try.by)
		found, err := c.Store.Orders(ctx, one)
		if err != nil {
			return err
		}
		for _, o := range found.Orders {
			known := func(f foundOrder) bool { return f.ID == o.ID && f.SaleID == o.SaleID }
			if !slices.ContainsFunc(v.Rows, known) {
				v.Rows = append(v.Rows, foundOrder{o, try.by})
			}
		}
	}
	return nil
}

func isNumber(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && n > 0
}
