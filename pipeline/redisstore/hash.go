package redisstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// KeyHash is what slots and events hold of an Idempotency-Key; empty where there is none.
func KeyHash(key string) string {
	if key == "" {
		return ""
	}
	return shortHash(key)
}

// PayloadHash is what slots hold of the request that came with an Idempotency-Key; empty where there was none.
func PayloadHash(keyHash string, quantity int) string {
	if keyHash == "" {
		return ""
	}
	return shortHash(strconv.Itoa(quantity))
}

// shortHash keeps 96 bits: enough that two keys of one buyer never collide, and short in a million slots.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}
