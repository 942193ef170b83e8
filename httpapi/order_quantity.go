package httpapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sluice/pipeline"
)

const fieldQuantity = "quantity"

// plainQuantity is the body that every client sends. It spares the order path the JSON decoder, which costs as much as
// all other handling of an order together.
var plainQuantity = regexp.MustCompile(`^[ \t\r\n]*\{[ \t\r\n]*"quantity"[ \t\r\n]*:[ \t\r\n]*([1-9][0-9]{0,2})[ \t\r\n]*\}[ \t\r\n]*$`)

// The expression may take no more than the limit; the limit itself, 1000, takes the way through the decoder.
const _ = uint(pipeline.MaxQuantityLimit - 999)

// decodeQuantity reads {"quantity":N}. It takes exactly that and {} (one unit): a field that is misspelt or sent twice
// would otherwise order something that the buyer did not mean. Errors are fieldErrors.
func decodeQuantity(body []byte) (int, error) {
	if at := plainQuantity.FindSubmatchIndex(body); at != nil {
		return strconv.Atoi(string(body[at[2]:at[3]]))
	}
	members, err := membersOf(body, fieldError{fieldBody, `it is not a JSON object; send {"quantity":1}`})
	if err != nil || len(members) == 0 {
		return 1, err
	}
	for _, m := range members {
		if m.name != fieldQuantity {
			return 0, fieldError{clipName(m.name), "this field is not known; the only one is quantity"}
		}
	}
	return quantityOf(members[0].value)
}

// quantityOf takes an integer as people write one. 1.0 and 1e3 are refused: clients that send them compute with floats,
// and the next one would be 0.30000000000000004.
func quantityOf(value json.RawMessage) (int, error) {
	text := string(value)
	if other := kindOf(text[0]); other != "" {
		return 0, fieldError{fieldQuantity, "it must be an integer, not " + other}
	}
	if strings.ContainsAny(text, ".eE") {
		return 0, fieldError{fieldQuantity, "it must be an integer, written without fraction or exponent"}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > pipeline.MaxQuantityLimit {
		return 0, fieldError{fieldQuantity, fmt.Sprintf("it must be from 1 to %d", pipeline.MaxQuantityLimit)}
	}
	return n, nil
}

// kindOf names a JSON value that is no number by its first byte.
func kindOf(first byte) string {
	switch first {
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case '[':
		return "an array"
	case '{':
		return "an object"
	default:
		return ""
	}
}
