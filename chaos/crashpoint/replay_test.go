package crashpoint

import (
	"fmt"
	"net/http"
)

// replay is an api that makes an order of a dead letter, as an operator asks. The letter's own order has not given
// back its unit yet. The operator who got no answer asks again, at another api.
func replay() *scenario {
	return &scenario{
		name: "replay", program: "api", from: "http replay",
		steps: []string{
			// given back
			"postgres read letter", "postgres read letter's releases", "redis release", "postgres mark released",
			"postgres begin replay", "redis admit", "postgres resolve letter", // noted, admitted, resolved
		},
		prepare: func(r *run) {
			sale := r.openSale()
			r.accept(sale, "ann")
			e := r.events()[0]
			r.exec(1, `insert into dead_letters (partition, entry_id, sale_id, order_id, payload, reason, error, deliveries)
				values (0, $1, $2, $3,
					jsonb_build_object('v', '1', 's', $2::text, 'k', '1', 'o', $3::text, 'n', '5', 'u', 'ann', 'q', '1', 't', '1'),
					'number-conflict', '', 1)`, e.EntryID, e.SaleID, e.OrderID)
			r.exec(1, `insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at,
					status, reason, closed_at)
				values ($1, $2::text::uuid, null, 'ann', 1, 0, $3, now(), 'rejected', 'number-conflict', now())`,
				e.SaleID, e.OrderID, e.Sequence)
			r.exec(1, `insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
				values ($1, $2::text::uuid, $3, 'ann', 1, 0, 'number-conflict')`, e.SaleID, e.OrderID, e.Sequence)
			r.exec(1, `insert into watermarks (sale_id, partition, seq) values ($1, 0, $2)`, e.SaleID, e.Sequence)
			r.must(r.rdb.XDel(r.Context(), keys.Orders(only), e.EntryID).Err())
		},
		act: func(r *run) {
			r.must(r.buyers.Retarget(r.victim.AdminURL()))
			r.first, _ = r.askReplay(r.buyers.URL()) // an error says that nobody answered
		},
		done: func(r *run) bool {
			if r.first.status != http.StatusOK {
				r.Fatalf("the operator was answered %+v, want 200", r.first)
			}
			return true
		},
		recover: func(r *run) {
			resolved := r.count(`select count(*) from dead_letters where resolved_at is not null`)
			replacements := r.takeOver("api", "worker")
			again, err := r.askReplay(replacements[0].AdminURL())
			want := http.StatusOK
			if resolved == 1 {
				want = http.StatusConflict
			}
			if err != nil || again.status != want {
				r.Errorf("asked again: got %+v, %v, want %d", again, err, want)
			}
			r.eventually("everything is settled", r.settled)
		},
		check: func(r *run) {
			r.balanced(saleID, "ann")
			r.same("orders", r.ordersOf(), []string{"ann confirmed", "ann rejected"})
			r.same("letters",
				r.rows(`select d.resolution, o.user_id from dead_letters d join orders o on o.id = d.replay_order_id`),
				[]string{"replayed ann"})
			r.same("audit log", r.rows(`select action, count(*)::text from audit_log group by action`),
				[]string{"create 1", "replay 1"})
		},
	}
}

func (r *run) askReplay(admin string) (answer, error) {
	r.Helper()
	id := r.count(`select id from dead_letters`)
	return r.post(fmt.Sprintf("%s/admin/v1/dead-letters/%d/replay", admin, id), `{}`,
		map[string]string{"Authorization": "Bearer " + adminToken})
}
