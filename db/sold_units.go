package db

// countMoved follows a part named `moved`, the units of each order of the sale $1 that this statement makes live
// (positive) or ends (negative), and adds them to the sale's counter. The sale's row is the hottest lock there is, so
// it comes after the orders are written. It adds to the newest version of the row (the level is read committed), and is
// where sales_sold_within_total refuses. Nothing is locked where nothing moved.
const countMoved = `counted as (
	update sales s set sold = s.sold + m.units
	from (select sum(units) as units from moved) m
	where s.id = $1 and m.units is not null
	returning s.id
)`

// countMovedOfMany is countMoved for orders of several sales. First it takes the lock of each sale's row by the order
// of ids, whatever plan the update gets.
const countMovedOfMany = `locked as (
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
