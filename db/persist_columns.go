package db

import "time"

// acceptColumns are accepts turned into one array per column, which is how unnest takes them. Numbers go as bigint and
// are narrowed by Postgres, so that one which is too big is refused as data like any other bad value.
type acceptColumns struct {
	sales, orders, users                       []string
	numbers, quantities, partitions, sequences []int64
	times                                      []time.Time
}

func newAcceptColumns(n int) *acceptColumns {
	return &acceptColumns{
		sales: make([]string, 0, n), orders: make([]string, 0, n), users: make([]string, 0, n),
		numbers: make([]int64, 0, n), quantities: make([]int64, 0, n), partitions: make([]int64, 0, n),
		sequences: make([]int64, 0, n), times: make([]time.Time, 0, n),
	}
}

func (c *acceptColumns) add(a accept) {
	c.sales = append(c.sales, a.SaleID)
	c.orders = append(c.orders, a.key.order.String())
	c.users = append(c.users, a.UserID)
	c.numbers = append(c.numbers, a.Number)
	c.quantities = append(c.quantities, int64(a.Quantity))
	c.partitions = append(c.partitions, int64(a.Partition))
	c.sequences = append(c.sequences, a.Sequence)
	c.times = append(c.times, a.AcceptedAt)
}
