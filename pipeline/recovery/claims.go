package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"sluice/pipeline"
)

// Why somebody has to be asked about an order, after Postgres had gone back.
const (
	// ClaimRestored is an order that was stored again. It may have been paid, and does not say so.
	ClaimRestored = "restored"
	// ClaimUnpaid is one that awaited its payment when the loss was found. It may have been paid since.
	ClaimUnpaid = "unpaid"
	// ClaimEnded is one that was live, and had ended: how is not known, and what was paid may be due for refund.
	ClaimEnded = "ended"
	// ClaimRefused is one that could not be stored again, or had come and ended.
	ClaimRefused = "refused"
)

// Claim is an order about which the payment provider knows what Postgres has forgotten.
type Claim struct {
	SaleID  string
	OrderID string
	Number  int64 // 0 where it has none
	UserID  string
	Status  pipeline.OrderStatus // now
	Why     string
}

// ClaimSum is the fingerprint of a list of claims: the same list has the same one.
type ClaimSum struct{ hash hash.Hash }

// NewClaimSum returns that of no claims.
func NewClaimSum() *ClaimSum { return &ClaimSum{sha256.New()} }

// Add adds the next claim of the list.
func (s *ClaimSum) Add(c *Claim) {
	fmt.Fprintf(s.hash, "%q %q %d %q %s %s\n", c.SaleID, c.OrderID, c.Number, c.UserID, c.Status, c.Why)
}

// String is the SHA-256 of what was added, in hex.
func (s *ClaimSum) String() string { return hex.EncodeToString(s.hash.Sum(nil)) }
