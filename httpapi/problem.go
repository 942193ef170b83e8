package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
)

// Code names what went wrong. It is stable: programs decide by it, `type` is /problems/<code>.
type Code string

// The codes. problems, below, says what each means.
const (
	CodeInvalidRequest       Code = "invalid-request"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeNotFound             Code = "not-found"
	CodeUnknownSale          Code = "unknown-sale"
	CodeUnknownOrder         Code = "unknown-order"
	CodeMethodNotAllowed     Code = "method-not-allowed"
	CodeAlreadyOrdered       Code = "already-ordered"
	CodeSoldOut              Code = "sold-out"
	CodeSaleNotOpen          Code = "sale-not-open"
	CodeSaleClosed           Code = "sale-closed"
	CodeSalePaused           Code = "sale-paused"
	CodeNotCancellable       Code = "not-cancellable"
	CodeOrderQueued          Code = "order-queued"
	CodeOrderRejected        Code = "order-rejected"
	CodeInvalidSignature     Code = "invalid-signature"
	CodeAmountMismatch       Code = "amount-mismatch"
	CodePaymentReused        Code = "payment-reused"
	CodeWebhooksOff          Code = "webhooks-not-configured"
	CodeNoWaitlist           Code = "no-waitlist"
	CodeWaitlistFull         Code = "waitlist-full"
	CodeNotSoldOut           Code = "not-sold-out"
	CodeAlreadyWaiting       Code = "already-waiting"
	CodeNotWaiting           Code = "not-waiting"
	CodeTooLarge             Code = "too-large"
	CodeUnsupportedMediaType Code = "unsupported-media-type"
	CodeIdempotencyKeyReused Code = "idempotency-key-reused"
	CodeHeadersTooLarge      Code = "headers-too-large"
	CodeInternal             Code = "internal"
	CodeOverloaded           Code = "overloaded"
	CodeBacklogFull          Code = "backlog-full"
	CodeStoreUnavailable     Code = "store-unavailable"
	CodeSaleNotLoaded        Code = "sale-not-loaded"

	// Of the admin side only.
	CodeConflict          Code = "conflict"
	CodeUnknownDeadLetter Code = "unknown-dead-letter"
	CodeUnknownEndpoint   Code = "unknown-endpoint"
)

// definition is what a code stands for, in HTTP and in words.
type definition struct {
	Code       Code
	Status     int
	RetryAfter time.Duration // when to try again; 0: trying again does not help by itself
	Title      string
	Meaning    string // what happened
	Advice     string // what to do about it
}

// problems is the one table from code to status. /problems/<code> shows its texts.
var problems = []definition{
	{CodeInvalidRequest, http.StatusBadRequest, 0, "Invalid request",
		"The request breaks a rule of this API. errors[] names each field and the rule.",
		"Correct the fields named in errors[]. Sending the same request again can't help."},
	{CodeUnauthenticated, http.StatusUnauthorized, 0, "Not authenticated",
		"The request does not say who sends it, or the proof does not hold.",
		"Send the credentials that the WWW-Authenticate header asks for."},
	{CodeNotFound, http.StatusNotFound, 0, "Not found",
		"Nothing is served at this path.",
		"Compare the path with /docs."},
	{CodeUnknownSale, http.StatusNotFound, 0, "Unknown sale",
		"No sale has this id.",
		"Take the id from /v1/sales. Ids are 1 to 64 characters of a-z, 0-9 and '-', and do not start with '-'."},
	{CodeUnknownOrder, http.StatusNotFound, 0, "Unknown order",
		"You have no such order in this sale. Orders of other buyers are answered in the same way.",
		"Take the order id from the answer that accepted the order, or ask for /v1/sales/{sale}/orders/mine."},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, 0, "Method not allowed",
		"The path exists, but not with this method.",
		"Use a method named in the Allow header."},
	{CodeAlreadyOrdered, http.StatusConflict, 0, "Already ordered",
		"You have a live order in this sale, and a buyer can have one. order_id names it.",
		"Follow the Location header to the order. To repeat a request safely, send the same Idempotency-Key with it."},
	{CodeSoldOut, http.StatusConflict, 0, "Sold out",
		"Fewer units are left than the order asks for.",
		"Units of orders that are not paid in time go back on sale; another attempt may succeed later."},
	{CodeSaleNotOpen, http.StatusConflict, 0, "Sale not open yet",
		"The sale has not begun. opens_at says when it does, by the clock of the store.",
		"Order at opens_at."},
	{CodeSaleClosed, http.StatusConflict, 0, "Sale closed",
		"The sale is over.",
		"Nothing: a closed sale does not open again."},
	{CodeSalePaused, http.StatusConflict, 0, "Sale paused",
		"The operator has paused the sale.",
		"Watch the sale's state at /v1/sales/{sale}, and order when it is open."},
	{CodeNotCancellable, http.StatusConflict, 0, "Order not cancellable",
		"The order is paid, or has ended in another way. order_status says how it stands.",
		"Look at the order. What is paid is undone by whoever runs the sale."},
	{CodeOrderQueued, http.StatusConflict, time.Second, "Order still queued",
		"The order is accepted and waits to be stored. Nothing was changed.",
		"Try again after Retry-After."},
	{CodeOrderRejected, http.StatusConflict, 0, "Order rejected",
		"The order was accepted, but could not stand, and was rejected while you waited for it. Its units went back on sale.",
		"Order again if you still want to; look at the order for the reason."},
	{CodeInvalidSignature, http.StatusUnauthorized, 0, "Invalid signature",
		"The webhook does not prove that it comes from the payment provider, or was signed too long ago. Nothing was recorded but the attempt.",
		"Sign id, time and the body as it is sent (Standard Webhooks), with the secret that PAYMENT_WEBHOOK_SECRET has, when you send it."},
	{CodeAmountMismatch, http.StatusUnprocessableEntity, 0, "Amount mismatch",
		"The amount or its currency is not what the order costs. The payment was recorded as refused, and the order was not changed.",
		"Pay the money back, or let an operator look at it: sluice payment ls --outcome refused."},
	{CodePaymentReused, http.StatusUnprocessableEntity, 0, "Payment reused",
		"This payment_id was told of before, with another order or amount. It was recorded as refused, and nothing was changed.",
		"Give each payment an id of its own, and repeat it only with the same content."},
	{CodeWebhooksOff, http.StatusServiceUnavailable, time.Minute, "Webhooks not configured",
		"This api was started without a secret to verify webhooks with. Nothing was looked at.",
		"Set PAYMENT_WEBHOOK_SECRET and start the api again; the provider sends the message again."},
	{CodeNoWaitlist, http.StatusConflict, 0, "No waitlist",
		"The sale has no waitlist.",
		"Units of orders that are not paid in time go back on sale; order again later."},
	{CodeWaitlistFull, http.StatusConflict, 0, "Waitlist full",
		"As many people wait as the sale allows.",
		"Places come free as people are served or leave; try again later."},
	{CodeNotSoldOut, http.StatusConflict, 0, "Not sold out",
		"So many units are left, and nobody waits for them.",
		"Order them."},
	{CodeAlreadyWaiting, http.StatusConflict, 0, "Already waiting",
		"You wait for another number of units. The detail says for how many, and where.",
		"Stay, or leave (DELETE) and join anew, at the end of the list."},
	{CodeNotWaiting, http.StatusNotFound, 0, "Not waiting",
		"You don't wait for units of this sale.",
		"Join with POST once the sale is sold out. An order that was made for you is at /v1/sales/{sale}/orders/mine."},
	{CodeTooLarge, http.StatusRequestEntityTooLarge, 0, "Body too large",
		"The body is larger than 64 KiB.",
		"An order is less than 100 bytes: {\"quantity\":1}. A webhook about a payment has some hundred."},
	{CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, 0, "Unsupported media type",
		"The body is not declared as JSON in UTF-8, or it is compressed.",
		"Send Content-Type: application/json, or no body at all for one unit."},
	{CodeIdempotencyKeyReused, http.StatusUnprocessableEntity, 0, "Idempotency key reused",
		"You used this Idempotency-Key before, for a different order.",
		"Use a new key for a new request; repeat a key only with the same payload."},
	{CodeHeadersTooLarge, http.StatusRequestHeaderFieldsTooLarge, 0, "Headers too large",
		"The request line and the headers are larger than 16 KiB.",
		"Send fewer or shorter headers."},
	{CodeInternal, http.StatusInternalServerError, 0, "Internal error",
		"This is a fault of the server. It was logged under request_id.",
		"Try again, with the same Idempotency-Key. If it stays, report the request_id."},
	{CodeOverloaded, http.StatusServiceUnavailable, time.Second, "Overloaded",
		"More requests are waiting than the server promises to answer in time. Nothing was ordered.",
		"Try again after Retry-After."},
	{CodeBacklogFull, http.StatusServiceUnavailable, 5 * time.Second, "Backlog full",
		"So many accepted orders wait to be stored that no further ones are accepted. Nothing was ordered; the sale is not sold out.",
		"Try again after Retry-After. Orders that were accepted before are safe."},
	{CodeStoreUnavailable, http.StatusServiceUnavailable, time.Second, "Store unavailable",
		"A store did not answer in time. An order may or may not have been accepted.",
		"Try again after Retry-After, with the same Idempotency-Key: it tells which, and never orders twice."},
	{CodeSaleNotLoaded, http.StatusServiceUnavailable, time.Second, "Sale not loaded",
		"The sale exists, but is not ready for orders yet. It is not sold out.",
		"Try again after Retry-After."},
}

// adminProblems are those that only the admin side has besides.
var adminProblems = []definition{
	{CodeConflict, http.StatusConflict, 0, "Conflict",
		"The state of things forbids it; the detail says what stands in the way.",
		"Look at what the detail names. Sending the same request again helps only once that has changed."},
	{CodeUnknownDeadLetter, http.StatusNotFound, 0, "Unknown dead letter",
		"No dead letter has this id.",
		"Take the id from /admin/v1/dead-letters?all=true."},
	{CodeUnknownEndpoint, http.StatusNotFound, 0, "Unknown endpoint",
		"No endpoint of events has this id.",
		"Take the id from /admin/v1/endpoints."},
}

var problemOf = func() map[Code]*definition {
	index := make(map[Code]*definition, len(problems)+len(adminProblems))
	for _, table := range [][]definition{problems, adminProblems} {
		for i := range table {
			index[table[i].Code] = &table[i]
		}
	}
	return index
}()

// FieldError says which part of a request breaks which rule. Field is the name of a body field, a header or a query
// parameter; "body" is the body as a whole.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (e FieldError) Error() string { return e.Field + ": " + e.Detail }

// problem is an error answer (RFC 9457). Handlers return one as an error; the envelope completes and writes it.
type problem struct {
	Type        string       `json:"type"`
	Code        Code         `json:"code"`
	Title       string       `json:"title"`
	Status      int          `json:"status"`
	Detail      string       `json:"detail"`
	Instance    string       `json:"instance,omitempty"`
	RequestID   string       `json:"request_id"`
	Errors      []FieldError `json:"errors,omitempty"`
	OrderID     string       `json:"order_id,omitempty"`
	OrderStatus string       `json:"order_status,omitempty"`
	OpensAt     string       `json:"opens_at,omitempty"`
	MaxQuantity int          `json:"max_quantity,omitempty"`
	Waitlist    bool         `json:"waitlist,omitempty"` // of a sold-out sale: one may wait

	location  string // header Location
	challenge string // header WWW-Authenticate
	cause     error  // for the log, never for the client
}

func newProblem(code Code, detail string) *problem {
	d := problemOf[code]
	return &problem{Type: "/problems/" + string(code), Code: code, Title: d.Title, Status: d.Status, Detail: detail}
}

// invalid is the answer to fields that break rules.
func invalid(errs ...FieldError) *problem {
	detail := "one field breaks a rule"
	if len(errs) != 1 {
		detail = strconv.Itoa(len(errs)) + " fields break a rule"
	}
	p := newProblem(CodeInvalidRequest, detail)
	if len(errs) == 1 {
		p.Detail = errs[0].Error()
	}
	p.Errors = errs
	return p
}

func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

func (p *problem) Unwrap() error { return p.cause }

// because keeps what the log should know.
func (p *problem) because(cause error) *problem {
	p.cause = cause
	return p
}

// write sends the problem. What belongs to the request (path, id) is filled in here, in one place.
func (p *problem) write(c echo.Context) error {
	h := c.Response().Header()
	p.Instance, p.RequestID = c.Request().URL.EscapedPath(), requestID(c)
	if wait := problemOf[p.Code].RetryAfter; wait > 0 {
		h[headerRetryAfter] = []string{strconv.Itoa(int(wait.Seconds()))}
	}
	if p.location != "" {
		h[headerLocation] = []string{p.location}
	}
	if p.challenge != "" {
		h[headerAuthenticate] = []string{p.challenge}
	}
	h[headerCacheControl] = noStore
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return send(c, p.Status, problemType, body)
}
