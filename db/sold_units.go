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
