package audit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"sluice/pipeline"
)

// fingerprint stands for one accept: an order, its buyer and its partition. It is 16 bytes, where slot and row take
// some hundred.
//
// It is half of a SHA-256 under a secret key. So the probability that sums agree although the accepts differ is 2^-128
// for each bucket, and so is that of two accepts with one fingerprint, for each pair. For an audit of ten million
// orders, all pairs together, that is less than 10^-24. Nobody who chooses user ids can do better, because the key is
// drawn anew for every look and never leaves it.
type fingerprint struct{ hi, lo uint64 }

// plus adds modulo 2^128.
func (f fingerprint) plus(g fingerprint) fingerprint {
	lo, carry := bits.Add64(f.lo, g.lo, 0)
	hi, _ := bits.Add64(f.hi, g.hi, carry)
	return fingerprint{hi, lo}
}

// minus subtracts modulo 2^128.
func (f fingerprint) minus(g fingerprint) fingerprint {
	lo, borrow := bits.Sub64(f.lo, g.lo, 0)
	hi, _ := bits.Sub64(f.hi, g.hi, borrow)
	return fingerprint{hi, lo}
}

// fingerprints makes the fingerprints of one look. It is used by one goroutine.
type fingerprints struct {
	text []byte // the key, then what is hashed
}

func newFingerprints() *fingerprints {
	const usual = 256 // bytes of key, order and buyer
	f := &fingerprints{text: make([]byte, sha256.Size, usual)}
	_, _ = rand.Read(f.text) // it ends the program rather than fail
	return f
}

// of returns the fingerprint of an accept. The length of the order's id keeps apart what would be one text otherwise.
func (f *fingerprints) of(p pipeline.Partition, orderID, userID string) fingerprint {
	text := binary.BigEndian.AppendUint32(f.text[:sha256.Size], uint32(p))     //nolint:gosec // 0 to 63
	text = binary.BigEndian.AppendUint32(text, uint32(len(orderID)&(1<<31-1))) //nolint:gosec // 31 bits
	text = append(append(text, orderID...), userID...)
	f.text = text[:sha256.Size]
	sum := sha256.Sum256(text)
	return fingerprint{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])}
}
