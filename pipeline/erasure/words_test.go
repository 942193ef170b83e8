package erasure_test

import (
	"testing"

	"sluice/pipeline/erasure"
)

// An id is replaced where it stands as a word of its own, and nowhere else.
func TestAnIDIsReplacedWhereItStands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind            erasure.Kind
		id, value, want string
	}{
		{erasure.Text, "anna", "anna", "X"},
		{erasure.Text, "anna", "by anna. anna's, (anna): joanna anna-2 anna@x", "by X. X's, (X): joanna anna-2 anna@x"},
		{erasure.Text, "anna", "nobody", "nobody"},
		{erasure.Text, "ann@x.com", "mail to ann@x.com, not to ann@x.community", "mail to X, not to ann@x.community"},
		{erasure.Text, "ann", "as ann wished", "as ann wished"}, // too short to be told from a word
		{erasure.Text, "müller", "von müller", "von X"},
		{erasure.JSON, "anna", `{"u": "anna", "q": 2}`, `{"q":2,"u":"X"}`},
		{erasure.JSON, "7", `{"u": "7", "q": "7", "n": 7}`, `{"n":7,"q":"7","u":"X"}`},
		{erasure.JSON, "a\"b<", `{"user_id": "a\"b<"}`, `{"user_id":"X"}`},
		{erasure.JSON, "anna", `{"set": {"u": "anna"}, "reason": "anna asked"}`, `{"reason":"X asked","set":{"u":"X"}}`},
		{
			erasure.JSON, "anna", `{"out": "{\"user_id\": \"anna\"}\n", "n": 10000000000000000001}`,
			`{"n":10000000000000000001,"out":"{\"user_id\":\"X\"}\n"}`,
		},
		{erasure.JSON, "anna", `{"user_id": "joanna"}`, `{"user_id": "joanna"}`},
		{erasure.JSON, "anna", `[["anna"]]`, `[["X"]]`},
		{erasure.Bytes, "anna", `no document, says anna`, `no document, says X`},
		{erasure.Bytes, "anna", `2 orders of anna`, `2 orders of X`}, // 2 is a document, but not all of it
		{erasure.Bytes, "anna", "{\"u\": \"anna\"}\nanna has 2", "{\"u\": \"X\"}\nX has 2"},
		{erasure.JSON, "anna", `{"reason": "[\"anna\"] asked for 2"}`, `{"reason":"[\"X\"] asked for 2"}`},
	} {
		got, replaced := erasure.Replace(test.kind, test.value, test.id, "X")
		if got != test.want || replaced != (test.value != test.want) {
			t.Errorf("%s in %s: got %s, %v, want %s", test.id, test.value, got, replaced, test.want)
		}
	}
}
