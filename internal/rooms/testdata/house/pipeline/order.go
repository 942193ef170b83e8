package pipeline

// Order is exported, and so are its field, which does not count, and its method, which does.
type Order struct{ ID string }

func (o *Order) Live() bool { return o.open() }

type status[T any] struct{ value T }

// Closed does not count: its type is not exported.
func (status[T]) Closed(a, b int) bool { return a == b }
