package httpapi

import (
	"strconv"

	"sluice/pipeline"
)

// receiptBytes is room for the longest receipt: a 64-byte sale id, a UUID, a 19-digit number.
const receiptBytes = 384

// appendReceipt writes a receipt as JSON. Nothing in it needs escaping: sale ids are [a-z0-9-], the rest is ours.
func appendReceipt(b []byte, r *pipeline.Receipt) []byte {
	b = append(b, `{"order_id":"`...)
	b = append(b, r.OrderID...)
	b = append(b, `","order_number":"`...)
	b = strconv.AppendInt(b, r.Number, 10)
	b = append(b, `","sale_id":"`...)
	b = append(b, r.SaleID...)
	b = append(b, `","quantity":`...)
	b = strconv.AppendInt(b, int64(r.Quantity), 10)
	b = append(b, `,"status":"`...)
	b = append(b, pipeline.StatusQueued...)
	b = append(b, `","durability":"`...)
	b = append(b, r.Durability...)
	b = append(b, `","accepted_at":"`...)
	b = r.AcceptedAt.UTC().AppendFormat(b, timestampLayout)
	return append(b, `"}`...)
}
