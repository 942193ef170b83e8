package notification

import (
	"container/list"
	"time"

	"sluice/pipeline"
)

// dueOrder is an order to be read: since when a change of it is known, or zero where none is.
type dueOrder struct {
	key   pipeline.OrderKey
	since time.Time
}

// dueQueue is what is to be read, each order once, oldest first. Its size is that of what it names: an order that
// nobody wants any more can be taken out of the middle.
type dueQueue struct {
	order list.List // of dueOrder
	at    map[pipeline.OrderKey]*list.Element
}

func newDueQueue() *dueQueue { return &dueQueue{at: map[pipeline.OrderKey]*list.Element{}} }

func (q *dueQueue) len() int { return len(q.at) }

func (q *dueQueue) has(key pipeline.OrderKey) bool { return q.at[key] != nil }

// push adds an order at the end. One that is there already keeps its position, and gets the time of the change if it
// has none.
func (q *dueQueue) push(d dueOrder) {
	e := q.at[d.key]
	if e == nil {
		q.at[d.key] = q.order.PushBack(d)
		return
	}
	if there := e.Value.(dueOrder); there.since.IsZero() {
		e.Value = d
	}
}

// pushFront puts an order back that was taken out before all others.
func (q *dueQueue) pushFront(d dueOrder) {
	q.drop(d.key)
	q.at[d.key] = q.order.PushFront(d)
}

// pop takes out the oldest; the queue must not be empty.
func (q *dueQueue) pop() dueOrder {
	e := q.order.Front()
	d := q.order.Remove(e).(dueOrder)
	delete(q.at, d.key)
	return d
}

func (q *dueQueue) drop(key pipeline.OrderKey) {
	if e := q.at[key]; e != nil {
		q.order.Remove(e)
		delete(q.at, key)
	}
}
