package loadgen

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// placeholderID stands for a buyer's id: 16 hexadecimal digits.
const placeholderID = "????????????????"

// BuyerID is the id of the n-th buyer. Like real ids they come in no order, which is what an index has to bear; and no
// two are the same, because every step of the mixing below can be undone.
func BuyerID(seed, n uint64) string {
	var id [len(placeholderID)]byte
	writeBuyer(id[:], seed, n)
	return string(id[:])
}

func writeBuyer(into []byte, seed, n uint64) {
	const digits = "0123456789abcdef"
	x := scatter(n ^ scatter(seed))
	for i := range into {
		into[i] = digits[x&15]
		x >>= 4
	}
}

// scatter mixes 64 bits (Stafford's variant 13, the finalizer of SplitMix64).
func scatter(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// template is an order of anybody for one sale, ready in memory: only the buyer's id changes.
type template struct {
	text []byte
	ids  []int // where the buyer's id stands in it
}

func newTemplate(c *Config, to target, sale string) template {
	body := fmt.Sprintf(`{"quantity":%d}`, c.Quantity)
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/sales/%s/orders HTTP/1.1\r\nHost: %s\r\nUser-Agent: sluice-bench\r\n%s: %s\r\n",
		sale, to.host, c.UserHeader, placeholderID)
	if c.Keys {
		fmt.Fprintf(&b, "Idempotency-Key: order-%s\r\n", placeholderID)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, c.Headers[name])
	}
	fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return template{text: b.Bytes(), ids: placesOf(b.Bytes(), []byte(placeholderID))}
}

// placesOf returns every place in text with what is looked for.
func placesOf(text, wanted []byte) []int {
	var places []int
	for at := 0; ; {
		next := bytes.Index(text[at:], wanted)
		if next < 0 {
			return places
		}
		places = append(places, at+next)
		at += next + len(wanted)
	}
}

// fill writes the n-th buyer's request into a buffer, which it returns.
func (t template) fill(into []byte, seed, n uint64) []byte {
	filled := append(into[:0], t.text...)
	for _, at := range t.ids {
		writeBuyer(filled[at:at+len(placeholderID)], seed, n)
	}
	return filled
}
