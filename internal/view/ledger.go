package view

import (
	"strconv"

	"sluice/pipeline"
	"sluice/pipeline/recovery"
)

// LedgerLoss is one time that Postgres had gone back.
type LedgerLoss struct {
	ID         string              `json:"id"`
	FoundAt    string              `json:"found_at"`
	FinishedAt *string             `json:"finished_at"` // null while orders are being stored again
	Sales      []recovery.SaleLoss `json:"sales"`       // by sale and partition, in numbers
}

// NewLedgerLosses views losses.
func NewLedgerLosses(losses []recovery.LedgerLoss) []LedgerLoss {
	views := make([]LedgerLoss, len(losses))
	for i, l := range losses {
		views[i] = LedgerLoss{
			ID: strconv.FormatInt(l.ID, 10), FoundAt: pipeline.FormatTime(l.FoundAt), FinishedAt: TimeOrNil(l.FinishedAt),
			Sales: l.Sales,
		}
	}
	return views
}

// Claim is an order about which the payment provider is to be asked.
type Claim struct {
	SaleID      string `json:"sale_id"`
	OrderID     string `json:"order_id"`
	OrderNumber string `json:"order_number"` // "0" where it has none
	UserID      string `json:"user_id"`
	Status      string `json:"status"` // now
	Why         string `json:"why"`    // restored, unpaid, ended or refused
}

// NewClaim views a claim.
func NewClaim(c *recovery.Claim) Claim {
	return Claim{
		SaleID: c.SaleID, OrderID: c.OrderID, OrderNumber: strconv.FormatInt(c.Number, 10), UserID: c.UserID,
		Status: string(c.Status), Why: c.Why,
	}
}
