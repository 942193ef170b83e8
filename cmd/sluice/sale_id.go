package main

import "errors"

// saleID is a flag that chooses one sale where all are meant without it. An empty one is a mistake, mostly a variable
// of the shell that is not set: a rebuild must not close every sale for that.
type saleID string

// UnmarshalText takes what was typed; whether there is such a sale is found out later.
func (id *saleID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("it is empty: give it a sale's id, or leave it out for all sales")
	}
	*id = saleID(text)
	return nil
}
