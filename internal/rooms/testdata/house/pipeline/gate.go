package pipeline

import "house/pipeline/worker" // a circle, which would not compile

const Limit, least = 1, 0

var Default = Order{}

// open makes gate.go and order.go use each other.
func (o Order) open() bool { return o.ID != "" && clock() > least && worker.Name != "" }
