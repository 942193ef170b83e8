package ordernumber

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

const (
	halfBits = (32 - blockBits) / 2
	halfMask = 1<<halfBits - 1
	// veilRounds is more than the four after which a Feistel network can't be told from a random permutation.
	veilRounds = 8
)

// veil returns a block in place of another: a permutation of all blocks of a day, which the issuer selects (a Feistel
// network, Luby and Rackoff 1988, with HMAC-SHA256 for its rounds). All processes that lease from one issuer veil
// alike, so that no two of their blocks become the same. The issuer names a server process by a random id that no
// client sees. Only the lower bits of the block are used.
func veil(issuer string, block uint32) uint32 {
	left, right := block>>halfBits&halfMask, block&halfMask
	for round := range byte(veilRounds) {
		mac := hmac.New(sha256.New, []byte(issuer))
		mac.Write([]byte{round, byte(right >> 8), byte(right)})
		left, right = right, left^uint32(binary.BigEndian.Uint16(mac.Sum(nil)))&halfMask
	}
	return left<<halfBits | right
}
