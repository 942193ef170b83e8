package lua

import (
	"fmt"
	"strconv"
	"strings"
)

// none replaces the idempotency hashes of a request without a key in a slot, which has a fixed number of fields.
const none = "-"

var noneArgument = none

// orNone returns an optional hash as Redis stores it. It returns a pointer because go-redis writes *string without the
// allocation that boxing a string costs.
func orNone(hash *string) *string {
	if *hash == "" {
		return &noneArgument
	}
	return hash
}

// checkWord refuses what would break a slot apart: its fields are separated by single spaces.
func checkWord(name, value string) error {
	if value == "" || value == none {
		return fmt.Errorf("%s is %q", name, value)
	}
	return checkOptionalWord(name, value)
}

func checkOptionalWord(name, value string) error {
	if value == none || strings.ContainsAny(value, " \t\n\v\f\r") {
		return fmt.Errorf("%s %q: %q and whitespace are not allowed", name, value, none)
	}
	return nil
}

// checkBatch keeps one call short: a script blocks every other client while it runs.
func checkBatch(items, most int) error {
	if items < 1 || items > most {
		return fmt.Errorf("a batch of %d: use 1 to %d", items, most)
	}
	return nil
}

// checkMaxEvents refuses a limit of the stream that would let nothing through.
func checkMaxEvents(maxEvents int64) error {
	if maxEvents < 1 {
		return fmt.Errorf("max events %d: use at least 1", maxEvents)
	}
	return nil
}

// checkEntryID requires the full form of a stream entry's id, milliseconds-sequence.
func checkEntryID(id string) error {
	ms, seq, _ := strings.Cut(id, "-")
	for _, half := range [...]string{ms, seq} {
		if _, err := strconv.ParseUint(half, 10, 64); err != nil {
			return fmt.Errorf("%q is not the id of a stream entry", id)
		}
	}
	return nil
}
