package main

// placeholderID stands for a buyer's id: 16 hexadecimal digits.
const placeholderID = "????????????????"

// buyerID is the id of the n-th buyer. Like real ids they come in no order, which is what an index has to bear; and
// no two are the same, because every step of the mixing below can be undone.
func buyerID(seed, n uint64) string {
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
