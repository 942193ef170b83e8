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
	CodeTooLarge             Code = "too-large"
	CodeUnsupportedMediaType Code = "unsupported-media-type"
	CodeIdempotencyKeyReused Code = "idempotency-key-reused"
	CodeHeadersTooLarge      Code = "headers-too-large"
	CodeInternal             Code = "internal"
	CodeOverloaded           Code = "overloaded"
	CodeStoreUnavailable     Code = "store-unavailable"
	CodeSaleNotLoaded        Code = "sale-not-loaded"
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
		"The request does not say who the buyer is, or the proof does not hold.",
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
	{CodeTooLarge, http.StatusRequestEntityTooLarge, 0, "Body too large",
		"The body is larger than 64 KiB.",
		"An order is less than 100 bytes: {\"quantity\":1}."},
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
	{CodeStoreUnavailable, http.StatusServiceUnavailable, time.Second, "Store unavailable",
		"A store did not answer in time. An order may or may not have been accepted.",
		"Try again after Retry-After, with the same Idempotency-Key: it tells which, and never orders twice."},
	{CodeSaleNotLoaded, http.StatusServiceUnavailable, time.Second, "Sale not loaded",
		"The sale exists, but is not ready for orders yet. It is not sold out.",
		"Try again after Retry-After."},
}

var problemOf = func() map[Code]*definition {
	index := make(map[Code]*definition, len(problems))
	for i := range problems {
		index[problems[i].Code] = &problems[i]
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
	OpensAt     string       `json:"opens_at,omitempty"`
	MaxQuantity int          `json:"max_quantity,omitempty"`

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
