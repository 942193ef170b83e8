package buyers

import "testing"

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]Answer{
		`{"outcome":"paid","order_id":"o1","order_status":"paid"}`: {Status: 200, OrderID: "o1", Payment: "paid"},
		`{"order_id":"o1","status":"waiting","position":3}`: {
			Status: 200, OrderID: "o1", State: "waiting",
			Position: 3,
		},
		`{"code":"sold-out","status":409}`: {Status: 200, Code: "sold-out"},
		``:                                 {Status: 200},
		`{"order_id":"o1","status":"queued","order_number":"7","quantity":2,"durability":"fsync"}`: {
			Status: 200, OrderID: "o1", State: "queued", Number: 7, Quantity: 2, Durability: "fsync",
		},
	} {
		want.Body = body
		if got, err := readAnswer(200, []byte(body)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", body, got, err, want)
		}
	}
	for _, status := range []int{200, 409} {
		if got, err := readAnswer(status, []byte("sold out")); err == nil {
			t.Errorf("%d: got %+v, want an error", status, got)
		}
	}
	for status, want := range map[int]bool{
		0: false, 200: true, 204: true, 409: true, 422: true, 429: false, 500: false,
		503: false,
	} {
		if got := (Answer{Status: status}).decided(); got != want {
			t.Errorf("%d: got %v, want %v", status, got, want)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
		want   Outcome
	}{
		{202, `{"order_id":"o1","status":"queued","durability":"fsync"}`, Accepted},
		{409, `{"code":"already-ordered","status":409,"order_id":"o1"}`, AlreadyOrdered},
		{409, `{"code":"sold-out","status":409}`, SoldOut},
		{503, `{"code":"overloaded"}`, NoAnswer},
		{202, `{}`, Unexpected},
		{200, `{"order_id":"o1"}`, Unexpected},
		{409, `{"code":"already-ordered"}`, Unexpected},
		{500, ``, Unexpected},
		{503, `{"status":503}`, Unexpected},
		{500, `{"code":"internal"}`, Unexpected},
		{400, `{"code":"invalid-request"}`, Unexpected},
	} {
		a, err := readAnswer(test.status, []byte(test.body))
		if got := outcomeOf(a); err != nil || got != test.want {
			t.Errorf("%d %s: got %s, %v, want %s", test.status, test.body, got.Code(), err, test.want.Code())
		}
	}
	if Unexpected.Definite() || NoAnswer.Definite() || !SoldOut.Definite() {
		t.Error("it is not known what counts as an answer")
	}
}

func TestUserHasANumber(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]bool{
		UserOf(7): true, UserOf(12_345_678): true, "buyer-7": false, "nobody": false,
		"": false,
	} {
		if _, got := numberOf(user); got != want {
			t.Errorf("%q: got %t, want %t", user, got, want)
		}
	}
}
