package httpapi

import (
	"net/http"
	"time"
)

// problemCode names what went wrong. It is stable: programs decide by it, `type` is /problems/<code>.
type problemCode string

// The codes. problems, below, says what each means.
const (
	codeInvalidRequest       problemCode = "invalid-request"
	codeUnauthenticated      problemCode = "unauthenticated"
	codeNotFound             problemCode = "not-found"
	codeUnknownSale          problemCode = "unknown-sale"
	codeUnknownOrder         problemCode = "unknown-order"
	codeMethodNotAllowed     problemCode = "method-not-allowed"
	codeAlreadyOrdered       problemCode = "already-ordered"
	codeSoldOut              problemCode = "sold-out"
	codeOverGroupLimit       problemCode = "over-group-limit"
	codeSaleNotOpen          problemCode = "sale-not-open"
	codeSaleClosed           problemCode = "sale-closed"
	codeSalePaused           problemCode = "sale-paused"
	codeNotCancellable       problemCode = "not-cancellable"
	codeOrderQueued          problemCode = "order-queued"
	codeOrderRejected        problemCode = "order-rejected"
	codeInvalidSignature     problemCode = "invalid-signature"
	codeAmountMismatch       problemCode = "amount-mismatch"
	codePaymentReused        problemCode = "payment-reused"
	codeUnknownPayment       problemCode = "unknown-payment"
	codeRefundRefused        problemCode = "refund-refused"
	codeWebhooksOff          problemCode = "webhooks-not-configured"
	codeNoWaitlist           problemCode = "no-waitlist"
	codeWaitlistFull         problemCode = "waitlist-full"
	codeNotSoldOut           problemCode = "not-sold-out"
	codeAlreadyWaiting       problemCode = "already-waiting"
	codeNotWaiting           problemCode = "not-waiting"
	codeTooLarge             problemCode = "too-large"
	codeUnsupportedMediaType problemCode = "unsupported-media-type"
	codeIdempotencyKeyReused problemCode = "idempotency-key-reused"
	codeHeadersTooLarge      problemCode = "headers-too-large"
	codeInternal             problemCode = "internal"
	codeOverloaded           problemCode = "overloaded"
	codeTooManyRequests      problemCode = "too-many-requests"
	codeLocalOnly            problemCode = "local-only"
	codeBacklogFull          problemCode = "backlog-full"
	codeStoreUnavailable     problemCode = "store-unavailable"
	codeSaleNotLoaded        problemCode = "sale-not-loaded"
	codeNotDurable           problemCode = "durability-unavailable"
	codeIdentityUnavailable  problemCode = "identity-unavailable"
	codeEntryTicketRequired  problemCode = "entry-ticket-required"
	codeEntryTicketInvalid   problemCode = "entry-ticket-invalid"
	codeEntryTicketEarly     problemCode = "entry-ticket-early"
	codeEntryTicketsOff      problemCode = "entry-tickets-off"
	codeEntryNotOpen         problemCode = "entry-not-open"
	codeEntryRefused         problemCode = "entry-refused"
	codeEntryUnavailable     problemCode = "entry-unavailable"
	codeNoEntryTicket        problemCode = "no-entry-ticket"

	// Of the admin side only.
	codeForbidden           problemCode = "forbidden"
	codeTooManyAttempts     problemCode = "too-many-attempts"
	codeConflict            problemCode = "conflict"
	codeIdempotencyKeyInUse problemCode = "idempotency-key-in-use"
	codeUnknownDeadLetter   problemCode = "unknown-dead-letter"
	codeUnknownEndpoint     problemCode = "unknown-endpoint"
)

// definition is what a code means, in HTTP and in words.
type definition struct {
	Code       problemCode
	Status     int
	RetryAfter time.Duration // when to try again; 0: trying again does not help by itself
	Title      string
	Meaning    string // what happened
	Advice     string // what to do about it
}

// problems is the one table from code to status. /problems/<code> shows its texts.
var problems = []definition{
	{
		codeInvalidRequest, http.StatusBadRequest, 0, "Invalid request",
		"The request breaks a rule of this API. errors[] names each field and the rule.",
		"Correct the fields named in errors[]. Sending the same request again can't help.",
	},
	{
		codeUnauthenticated, http.StatusUnauthorized, 0, "Not authenticated",
		"The request does not say who sends it, or the proof is not valid.",
		"Send the credentials that the WWW-Authenticate header asks for.",
	},
	{
		codeNotFound, http.StatusNotFound, 0, "Not found",
		"Nothing is served at this path.",
		"Compare the path with /docs.",
	},
	{
		codeUnknownSale, http.StatusNotFound, 0, "Unknown sale",
		"No sale has this id.",
		"Take the id from /v1/sales. Ids are 1 to 64 characters of a-z, 0-9 and '-', and do not start with '-'.",
	},
	{
		codeUnknownOrder, http.StatusNotFound, 0, "Unknown order",
		"You have no such order in this sale. Orders of other buyers are answered in the same way.",
		"Take the order id from the answer that accepted the order, or ask for /v1/sales/{sale}/orders/mine.",
	},
	{
		codeMethodNotAllowed, http.StatusMethodNotAllowed, 0, "Method not allowed",
		"The path exists, but not with this method.",
		"Use a method named in the Allow header.",
	},
	{
		codeAlreadyOrdered, http.StatusConflict, 0, "Already ordered",
		"You have a live order in this sale, and a buyer can have only one. order_id names it.",
		"Follow the Location header to the order. To repeat a request safely, send the same Idempotency-Key with it.",
	},
	{
		codeSoldOut, http.StatusConflict, 0, "Sold out",
		"Fewer units are left than the order asks for.",
		"Units of orders that are not paid in time go back on sale; another attempt may succeed later.",
	},
	{
		codeOverGroupLimit, http.StatusConflict, 0, "Over the limit of these sales",
		"A buyer may have so many units in a group of sales, and this order would be more. Units that the buyer waits for count.",
		"Order fewer units, or cancel an order in one of the other sales first.",
	},
	{
		codeSaleNotOpen, http.StatusConflict, 0, "Sale not open yet",
		"The sale has not begun. opens_at says when it does, by the clock of the store.",
		"Order at opens_at.",
	},
	{
		codeSaleClosed, http.StatusConflict, 0, "Sale closed",
		"The sale is over.",
		"Nothing, unless the shop reschedules the sale: /v1/sales/{sale} has its state and its window.",
	},
	{
		codeSalePaused, http.StatusConflict, 0, "Sale paused",
		"The operator has paused the sale.",
		"Watch the sale's state at /v1/sales/{sale}, and order when it is open.",
	},
	{
		codeNotCancellable, http.StatusConflict, 0, "Order not cancellable",
		"The order is paid, or has ended in another way. order_status says which.",
		"Look at the order. A paid order can only be undone by the operator of the sale.",
	},
	{
		codeOrderQueued, http.StatusConflict, time.Second, "Order still queued",
		"The order is accepted and waits to be stored. Nothing was changed.",
		"Try again after Retry-After.",
	},
	{
		codeOrderRejected, http.StatusConflict, 0, "Order rejected",
		"The order was accepted, but was rejected while you waited for it. Its units went back on sale.",
		"Order again if you still want to; look at the order for the reason.",
	},
	{
		codeInvalidSignature, http.StatusUnauthorized, 0, "Invalid signature",
		"The webhook does not prove that it comes from the payment provider, or was signed too long ago. Nothing was recorded but the attempt.",
		"Sign id, time and the body as it is sent (Standard Webhooks), with the secret that PAYMENT_WEBHOOK_SECRET has, when you send it.",
	},
	{
		codeAmountMismatch, http.StatusUnprocessableEntity, 0, "Amount mismatch",
		"The amount or its currency is not what the order costs or, of a refund, what is left of its payment. It was recorded as refused, and nothing was changed.",
		"Pay the money back, or let an operator look at it: sluice payment ls --outcome refused. A refund of less must say that it is partial.",
	},
	{
		codePaymentReused, http.StatusUnprocessableEntity, 0, "Payment reused",
		"This payment_id was reported before, with another order or amount. It was recorded as refused, and nothing was changed.",
		"Give each payment an id of its own, and repeat it only with the same content.",
	},
	{
		codeUnknownPayment, http.StatusNotFound, 0, "Unknown payment",
		"No payment that counts has this id. A refund of it was recorded as refused.",
		"Take the id from sluice payment ls. A payment that was refused here has nothing to refund.",
	},
	{
		codeRefundRefused, http.StatusUnprocessableEntity, 0, "Refund refused",
		"The refund does not fit its payment; the detail says why. It was recorded as refused, and nothing was changed.",
		"Let an operator look at the payment, and report the refund by hand: sluice payment refunded.",
	},
	{
		codeWebhooksOff, http.StatusServiceUnavailable, time.Minute, "Webhooks not configured",
		"This api was started without a secret to verify webhooks with. The message was not read.",
		"Set PAYMENT_WEBHOOK_SECRET and start the api again; the provider sends the message again.",
	},
	{
		codeNoWaitlist, http.StatusConflict, 0, "No waitlist",
		"The sale has no waitlist.",
		"Units of orders that are not paid in time go back on sale; order again later.",
	},
	{
		codeWaitlistFull, http.StatusConflict, 0, "Waitlist full",
		"The waitlist has as many entries as the sale allows.",
		"Entries become free as buyers are served or leave; try again later.",
	},
	{
		codeNotSoldOut, http.StatusConflict, 0, "Not sold out",
		"Enough units are left, and no buyer waits for them.",
		"Order them.",
	},
	{
		codeAlreadyWaiting, http.StatusConflict, 0, "Already waiting",
		"You already wait, for another number of units. The detail says for how many, and at which position.",
		"Stay, or leave (DELETE) and join again, at the end of the list.",
	},
	{
		codeNotWaiting, http.StatusNotFound, 0, "Not waiting",
		"You are not on the waitlist of this sale.",
		"Join with POST once the sale is sold out. An order that was made for you is at /v1/sales/{sale}/orders/mine.",
	},
	{
		codeTooLarge, http.StatusRequestEntityTooLarge, 0, "Body too large",
		"The body is larger than 4 KiB (a webhook, or a body of the admin API: 64 KiB).",
		"An order is less than 100 bytes: {\"quantity\":1}. A webhook about a payment has some hundred bytes.",
	},
	{
		codeUnsupportedMediaType, http.StatusUnsupportedMediaType, 0, "Unsupported media type",
		"The body is not declared as JSON in UTF-8, or it is compressed.",
		"Send Content-Type: application/json, or no body at all for one unit.",
	},
	{
		codeIdempotencyKeyReused, http.StatusUnprocessableEntity, 0, "Idempotency key reused",
		"You used this Idempotency-Key before, for something else.",
		"Use a new key for a new request; repeat a key only with the same payload.",
	},
	{
		codeHeadersTooLarge, http.StatusRequestHeaderFieldsTooLarge, 0, "Headers too large",
		"The request line and the headers are larger than 16 KiB.",
		"Send fewer or shorter headers.",
	},
	{
		codeInternal, http.StatusInternalServerError, 0, "Internal error",
		"The server failed. The cause was logged under request_id.",
		"Try again, with the same Idempotency-Key. If it persists, report the request_id.",
	},
	{
		codeLocalOnly, http.StatusForbidden, 0, "Only for this machine",
		"This address is for programs on the machine itself, and the request was made under another name or forwarded.",
		"Call it as localhost. Where others are to reach it, set AUTH_MODE, HTTP_ADDR and ADMIN_ADDR for that, or ALLOWED_HOSTS.",
	},
	{
		codeTooManyRequests, http.StatusTooManyRequests, time.Second, "Too many requests",
		"One buyer, one client address or one sale has asked for more than its share. Nothing was done. RateLimit-Policy names the limit.",
		"Ask again after Retry-After, and no more often than RateLimit-Policy says.",
	},
	{
		codeOverloaded, http.StatusServiceUnavailable, time.Second, "Overloaded",
		"More requests are waiting than the server promises to answer in time. Nothing was ordered.",
		"Try again after Retry-After.",
	},
	{
		codeBacklogFull, http.StatusServiceUnavailable, 5 * time.Second, "Backlog full",
		"So many accepted orders wait to be stored that no further ones are accepted. Nothing was ordered; the sale is not sold out.",
		"Try again after Retry-After. Orders that were accepted before are safe.",
	},
	{
		codeStoreUnavailable, http.StatusServiceUnavailable, time.Second, "Store unavailable",
		"A store did not answer in time. An order may or may not have been accepted.",
		"Try again after Retry-After, with the same Idempotency-Key: the answer says which, and it never orders twice.",
	},
	{
		codeSaleNotLoaded, http.StatusServiceUnavailable, time.Second, "Sale not loaded",
		"The sale exists, but is not ready for orders yet. It is not sold out.",
		"Try again after Retry-After.",
	},
	{
		codeNotDurable, http.StatusServiceUnavailable, time.Second, "Durability unavailable",
		"Orders can't be stored as safely as this shop promises at the moment, so none are accepted. This request took nothing " +
			"from the stock; an order of an earlier request is not affected.",
		"Try again after Retry-After, with the same Idempotency-Key.",
	},
	{
		codeIdentityUnavailable, http.StatusServiceUnavailable, 5 * time.Second, "Identity unavailable",
		"The keys that prove who buyers are can't be fetched at the moment. Nothing is known about the token, and nothing was done.",
		"Try again after Retry-After, with the same token: signing in again does not help.",
	},
	{
		codeEntryTicketRequired, http.StatusForbidden, 0, "Entry ticket required",
		"Orders of this sale, and joins of its waitlist, need an entry ticket, and the request has none.",
		"Ask for one with POST /v1/sales/{sale}/ticket, before the sale opens, and send it in the header Entry-Ticket.",
	},
	{
		codeEntryTicketInvalid, http.StatusForbidden, 0, "Entry ticket not valid",
		"The entry ticket is not one of this buyer for this sale, it has expired, or the key that signed it is out of use.",
		"Ask for another one with POST /v1/sales/{sale}/ticket. A ticket is good for its own buyer and sale only.",
	},
	{
		codeEntryTicketEarly, http.StatusForbidden, time.Second, "Too early for this entry ticket",
		"Buyers are let in one after the other, and the turn of this one has not come. not_before says when it does.",
		"Order at not_before, with the same ticket. Asking earlier or more often changes nothing.",
	},
	{
		codeEntryNotOpen, http.StatusConflict, time.Second, "No entry tickets yet",
		"Entry tickets of this sale are given from not_before on, some time before it opens.",
		"Ask at not_before or later, before the sale opens: later ones are good later.",
	},
	{
		codeNoEntryTicket, http.StatusConflict, 0, "No entry ticket needed",
		"Orders of this sale need no entry ticket.",
		"Order without one. /v1/sales/{sale} says in entry_ticket whether one is needed.",
	},
	{
		codeEntryRefused, http.StatusForbidden, 0, "Entry refused",
		"The shop's own check in front of this sale did not let the buyer pass. The detail has its reason, if it gave one.",
		"Do what the shop asks for, for instance solve its captcha, and ask again with the new proof.",
	},
	{
		codeEntryUnavailable, http.StatusServiceUnavailable, 2 * time.Second, "Entry check unavailable",
		"The shop's own check in front of this sale gave no answer, so no entry ticket was given.",
		"Try again after Retry-After, with the same proof, or another one if it can be used once only.",
	},
	{
		codeEntryTicketsOff, http.StatusServiceUnavailable, time.Minute, "Entry tickets not configured",
		"Orders of this sale need an entry ticket, and this api was started without keys to give and verify them.",
		"Set ENTRY_TICKET_KEYS and start the api again, or let the sale do without: sluice sale edit --no-entry-ticket.",
	},
}

// adminProblems are the additional ones of the admin side.
var adminProblems = []definition{
	{
		codeForbidden, http.StatusForbidden, 0, "Forbidden",
		"The token is valid, and its role does not allow this. The detail says which role does.",
		"Use a token of that role: sluice token add makes one.",
	},
	{
		codeTooManyAttempts, http.StatusTooManyRequests, time.Minute, "Too many attempts",
		"So many wrong tokens came from this address, or from all, that none is looked at for a while.",
		"Wait for Retry-After, and send the right token. sluice token ls shows which there are.",
	},
	{
		codeConflict, http.StatusConflict, 0, "Conflict",
		"The current state does not allow it; the detail says why.",
		"Look at what the detail names. Sending the same request again helps only once that has changed.",
	},
	{
		codeIdempotencyKeyInUse, http.StatusConflict, time.Second, "Idempotency key in use",
		"A request with this Idempotency-Key is under way, or its process died less than 40 seconds ago.",
		"Try again after Retry-After, with the same key: you get the answer of that request, or it is done now.",
	},
	{
		codeUnknownDeadLetter, http.StatusNotFound, 0, "Unknown dead letter",
		"No dead letter has this id.",
		"Take the id from /admin/v1/dead-letters?all=true.",
	},
	{
		codeUnknownEndpoint, http.StatusNotFound, 0, "Unknown endpoint",
		"No endpoint of events has this id.",
		"Take the id from /admin/v1/endpoints.",
	},
}

var problemOf = func() map[problemCode]*definition {
	index := make(map[problemCode]*definition, len(problems)+len(adminProblems))
	for _, table := range [][]definition{problems, adminProblems} {
		for i := range table {
			index[table[i].Code] = &table[i]
		}
	}
	return index
}()
