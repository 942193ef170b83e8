package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/payments"
)

type logCmd struct {
	Actor    string `placeholder:"NAME" help:"Only what this one did, for instance cli:ann@shop-1."`
	Action   string `placeholder:"WORD" help:"Only actions of this kind, for instance restock."`
	Sale     string `placeholder:"ID" help:"Only what was done to this sale, its orders included."`
	Order    string `placeholder:"ID" help:"Only what was done to this order."`
	Letter   int64  `name:"dead-letter" placeholder:"ID" help:"Only what was done to this dead letter."`
	Payment  int64  `placeholder:"ID" help:"Only what was done to this payment, by its id in sluice payment ls."`
	Endpoint int64  `placeholder:"ID" help:"Only what was done to this endpoint."`
	Since    string `placeholder:"TIME" help:"Only from then on: RFC 3339, or 2h for two hours ago."`
	Until    string `placeholder:"TIME" help:"Only before then, in the same form."`
	After    int64  `placeholder:"ID" help:"Where the page before ended: the id of its last line."`
	Limit    int    `default:"100" placeholder:"N" help:"Lines at most, 1 to 500; default 100."`
}

// Run lists the audit log, the newest line first.
func (c *logCmd) Run(a *app) error {
	filter := auditlog.Filter{
		Actor: c.Actor, Action: c.Action, SaleID: c.Sale, OrderID: c.Order, Letter: c.Letter, Payment: c.Payment,
		Endpoint: c.Endpoint, After: c.After, Limit: c.Limit,
	}
	var err error
	now := time.Now()
	if filter.Since, err = past("--since", c.Since, now); err != nil {
		return err
	}
	if filter.Until, err = past("--until", c.Until, now); err != nil {
		return err
	}
	if err := filter.Validate(); err != nil {
		return err
	}
	return a.withPostgres(func(s *stores) error {
		entries, err := s.postgres.AuditLog(a.ctx, filter)
		if err != nil {
			return err
		}
		views, last := view.NewLog(entries), ""
		t := table.New("ID", "TIME", "ACTOR", "ACTION", "SALE", "WHAT")
		for i := range views {
			e, v := &entries[i], &views[i]
			last = v.ID
			t.Row(v.ID, shortTime(e.At), e.Actor, e.Action, e.SaleID, changeText(v))
		}
		err = printList(a, views, t, "No such lines in the audit log.")
		a.sayMore(len(views), c.Limit, last)
		return err
	})
}

// changeText is what a line says: the fields that changed, then the rest.
func changeText(v *view.LogEntry) string {
	before, after, rest := fieldsOf(v.Before), fieldsOf(v.After), fieldsOf(v.Detail)
	var words []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, is := before[name], after[name]
		switch {
		case was == is || name == "version":
		case v.Before == nil:
			words = append(words, name+" "+is)
		default:
			words = append(words, name+" "+was+" → "+is)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		if rest[name] == "" { // it was not given
			continue
		}
		words = append(words, name+" "+rest[name])
	}
	return strings.Join(words, ", ")
}

// fieldsOf are the members of an object as people read them.
func fieldsOf(object json.RawMessage) map[string]string {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil // null: there is none
	}
	texts := make(map[string]string, len(members))
	for name, value := range members {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		texts[name] = text
	}
	moneyIn(members, texts)
	return texts
}

// moneyIn takes minor units and their currency together: 1999 and EUR are 19.99 EUR.
func moneyIn(members map[string]json.RawMessage, texts map[string]string) {
	currency, ok := texts["currency"]
	if !ok || currency == "" {
		return
	}
	for _, name := range []string{"amount", "unit_price"} {
		var units int64
		if value, ok := members[name]; ok && json.Unmarshal(value, &units) == nil {
			texts[name] = payments.MoneyText(units, currency)
			delete(texts, "currency")
		}
	}
}
