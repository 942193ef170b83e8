package distribution

// table is one that Citus manages.
type table struct {
	name string
	by   string   // the column with the sale; empty: sale_id
	keys []string // statements that replace, before that, the keys which can't hold across nodes
}

func (t table) sale() string {
	if t.by == "" {
		return "sale_id"
	}
	return t.by
}

// bySale are distributed by the sale, all side by side: what belongs to one sale is on one node. sales comes first.
//
// The keys keep their names. What they no longer forbid, the same id under another sale, is looked for by the
// statements that could write it, under an advisory lock of the coordinator
// (docs/decisions/0045-distributed-postgres.md).
var bySale = []table{
	{name: "sales", by: "id"},
	{name: "orders", keys: []string{
		`alter table orders drop constraint orders_number_key`,
		`alter table orders add constraint orders_number_key unique (number, sale_id)`,
	}},
	{name: "releases"},
	{name: "watermarks"},
	{name: "waitlist"},
	{name: "sale_phases"},
	{name: "sale_drops"},
	{name: "unit_moves"},
	{name: "dropped_orders"},
	{name: "dropped_payments"},
	{name: "dropped_accepts"},
	{name: "payments", keys: []string{
		`alter table payments drop constraint payments_pkey`,
		`alter table payments add constraint payments_pkey primary key (id, sale_id)`,
		`alter table payments drop constraint payments_webhook_id_key`,
		`alter table payments add constraint payments_webhook_id_key unique (webhook_id, sale_id)`,
		`drop index payments_money_key`,
		`create unique index payments_money_key on payments (payment_id, sale_id)
			where outcome in ('waiting', 'paid', 'refund_due', 'refunded')`,
	}},
	{name: "refunds", keys: []string{
		`alter table refunds drop constraint refunds_pkey`,
		`alter table refunds add constraint refunds_pkey primary key (id, sale_id)`,
		`alter table refunds drop constraint refunds_webhook_id_key`,
		`alter table refunds add constraint refunds_webhook_id_key unique (webhook_id, sale_id)`,
		`drop index refunds_money_key`,
		`create unique index refunds_money_key on refunds (refund_id, sale_id) where outcome <> 'refused'`,
	}},
	{name: "dead_letters", keys: []string{
		`alter table dead_letters drop constraint dead_letters_pkey`,
		`alter table dead_letters add constraint dead_letters_pkey primary key (id, sale_id)`,
		`drop index dead_letters_entry_key`,
		`create unique index dead_letters_entry_key on dead_letters (partition, entry_id, md5(payload::text), sale_id)`,
	}},
	{name: "outbox", keys: []string{
		`alter table outbox drop constraint outbox_pkey`,
		`alter table outbox add constraint outbox_pkey primary key (id, sale_id)`,
		`drop index outbox_position_key`,
		`create unique index outbox_position_key on outbox (position, sale_id) where position is not null`,
	}},
}

// everywhere are on every node: what the triggers of a sale's tables read, and what is joined with them.
var everywhere = []table{
	// A key can't refer from one node to another. What prunes events deletes their resends.
	{name: "endpoints", keys: []string{`alter table resends drop constraint resends_event_kept`}},
}

// functions are called by triggers, in this order.
var functions = []string{
	"event_time(timestamptz)", "order_asked_ms(uuid)", "order_price(sales, uuid)", "event_data(orders)",
	"payment_event_data(payments, orders)", "sale_event_data(sales)", "announce_sale(text, sales, jsonb)",
	"enter_sale_phase(sales, text)", "sale_phase(sales)",
}
