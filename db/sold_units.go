package db

// countMoved follows a part named `moved`, the units of each order that this statement makes live (positive) or ends
// (negative), and adds them to the sales' counters.
//
//   - locked: takes the lock of each sale's row by the order of ids, whatever plan the update below gets. It is the
//     hottest lock there is, so it comes after the orders are written. NO KEY UPDATE, as the update itself needs.
//   - counted: adds to the newest version of the row (the level is read committed), and is where
//     sales_sold_within_total refuses. sales_pkey serves both.
const countMoved = `locked as (
	select s.id, by_sale.units
	from (select sale_id, sum(units) as units from moved group by sale_id) by_sale
	join sales s on s.id = by_sale.sale_id
	order by s.id
	for no key update of s
), counted as (
	update sales s set sold = s.sold + locked.units
	from locked
	where s.id = locked.id
	returning s.id
)`
