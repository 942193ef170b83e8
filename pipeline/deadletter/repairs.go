package deadletter

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// RepairFields are the fields of an event that a replay reads, and so those that an operator can repair: version, sale,
// user, quantity. Everything else of an order is made anew.
var RepairFields = []string{"s", "u", "q", "v"}

// maxRepairBytes bounds a repaired value: more than any field's own limit, so that the error names the field's own
// rule.
const maxRepairBytes = 1000

// ValidateRepairs returns a KindInvalid error for a field that a replay does not read, or a value that no field could
// have.
func ValidateRepairs(repairs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(repairs)) {
		switch value := repairs[name]; {
		case !slices.Contains(RepairFields, name):
			return pipeline.Errorf(pipeline.KindInvalid, "field %q can't be set: a replay reads %s and makes the others anew",
				pipeline.Clip(name), strings.Join(RepairFields, ", "))
		case len(value) > maxRepairBytes || !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return pipeline.Errorf(pipeline.KindInvalid, "field %s: use at most %d bytes of UTF-8", name, maxRepairBytes)
		}
	}
	return nil
}

// readReplay reads what a replay needs as an event is read, with harmless values for what is made anew: a wrecked
// sequence or number must not stop a replay.
func readReplay(letter *Letter, repairs map[string]string) (ReplayAs, error) {
	fields := map[string]any{"v": "1", "k": "1", "o": uuid.Nil.String(), "n": "1", "t": "1"}
	for _, name := range RepairFields {
		if value, ok := payloadField(letter, name); ok {
			fields[name] = value
		}
		if value, ok := repairs[name]; ok {
			fields[name] = value
		}
	}
	event, err := pipeline.DecodeEvent(letter.Partition, letter.EntryID, fields)
	if err != nil {
		return ReplayAs{}, pipeline.Errorf(
			pipeline.KindInvalid, "dead letter %d: %s; give the field another value", letter.ID, err,
		)
	}
	return ReplayAs{SaleID: event.SaleID, UserID: event.UserID, Quantity: event.Quantity}, nil
}

// payloadField is the value of a payload's field as it was in the stream, unless it was cut.
func payloadField(l *Letter, name string) (string, bool) {
	switch value := l.Payload[name].(type) {
	case string:
		return value, true
	case map[string]any:
		encoded, _ := value["base64"].(string)
		plain, err := base64.StdEncoding.DecodeString(encoded)
		return string(plain), err == nil
	default:
		return "", false
	}
}
