package httpapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/httpapi/entry"
	"sluice/internal/view"
	"sluice/pipeline"
)

const (
	entryTicketRoute  = "/v1/sales/:sale/ticket"
	headerEntryTicket = "Entry-Ticket"

	fieldProof = "proof"
)

// entryTicketView is an entry ticket as its buyer gets it.
type entryTicketView struct {
	SaleID      string `json:"sale_id"`
	EntryTicket string `json:"entry_ticket"`
	NotBefore   string `json:"not_before"` // orders with it are taken from then on
	ExpiresAt   string `json:"expires_at"`
}

// giveEntryTicket answers POST …/ticket. Nothing is stored: asking again gives another text for the same buyer.
func (a *api) giveEntryTicket(c echo.Context) error {
	userID, sale, err := a.buyerAndSale(c)
	if err != nil {
		return err
	}
	ask := entry.Ask{UserID: userID, RequestID: requestID(c), Client: a.guard.addresses.Of(c.Request()).String()}
	if ask.Proof, err = readProof(c); err != nil {
		return err
	}
	ask.Bound = func() (done func(), err error) { return a.guard.enterHook(userID) }
	given, err := a.Entry.Give(c.Request().Context(), sale, ask)
	if early, ok := errors.AsType[*entry.NotYet](err); ok {
		return notYet(codeEntryNotOpen, "entry tickets are given from "+view.Time(early.NotBefore)+" on", early)
	}
	if err != nil {
		return entryProblem(err)
	}
	return sendJSON(c, http.StatusOK, entryTicketView{
		sale.ID, given.Text, view.Time(given.NotBefore), view.Time(given.ExpiresAt),
	})
}

// readProof reads {"proof":"…"}, which is for the shop's own check. Errors: *problem, fieldError.
func readProof(c echo.Context) (proof string, err error) {
	if _, err = readFieldsWithin(c, maxOrderBytes, map[string]any{fieldProof: &proof}); err != nil {
		return "", err
	}
	if len(proof) > entry.MaxProofBytes {
		return "", fieldError{fieldProof, fmt.Sprintf("it must have at most %d bytes", entry.MaxProofBytes)}
	}
	return proof, nil
}

// enter refuses a buyer without an entry ticket, where the sale asks for one, and one whose time has not come. It asks
// no store and comes before all that does.
func (a *api) enter(c echo.Context, sale *pipeline.Sale, userID string) error {
	if !sale.EntryTicket {
		return nil
	}
	text := strings.Join(c.Request().Header[headerEntryTicket], ",") // two are as wrong as none
	err := a.Entry.Check(sale, userID, text)
	if early, ok := errors.AsType[*entry.NotYet](err); ok {
		return notYet(codeEntryTicketEarly, "the entry ticket is good from "+view.Time(early.NotBefore)+" on", early)
	}
	if err != nil {
		return entryProblem(err)
	}
	return nil
}

// isEarly reports whether a refusal is a matter of time.
func isEarly(refusal error) bool {
	p, ok := errors.AsType[*problem](refusal)
	return ok && p.NotBefore != ""
}

func notYet(code problemCode, detail string, early *entry.NotYet) *problem {
	p := newProblem(code, detail)
	p.NotBefore = view.Time(early.NotBefore)
	p.retryAfter = time.Duration(math.Ceil(early.Left.Seconds())) * time.Second
	p.RetryAfterMs = int64(math.Ceil(early.Left.Seconds() * 1000))
	return p
}

// entryProblem is the answer to every other error of package entry.
func entryProblem(err error) error {
	if flaw, ok := errors.AsType[entry.Flaw](err); ok {
		return newProblem(codeEntryTicketInvalid, flaw.Error())
	}
	if refused, ok := errors.AsType[*entry.Refused](err); ok {
		detail := refused.Reason
		if detail == "" {
			detail = "the shop's check in front of this sale did not let you pass"
		}
		return newProblem(codeEntryRefused, detail)
	}
	for because, code := range map[error]problemCode{
		entry.ErrMissing: codeEntryTicketRequired, entry.ErrNoKeys: codeEntryTicketsOff, entry.ErrOver: codeSaleClosed,
		entry.ErrNotNeeded: codeNoEntryTicket, entry.ErrNoAnswer: codeEntryUnavailable,
	} {
		if errors.Is(err, because) {
			return newProblem(code, because.Error())
		}
	}
	return err
}

// The fields of a sale for operators.
const (
	fieldEntryTicket = "entry_ticket"
	fieldEntrySpread = "entry_spread_seconds"
)

// checkSpread refuses what would overflow; pipeline.Sale has the limit itself.
func checkSpread(seconds int64) *fieldError {
	if seconds < 0 || seconds > 600 {
		return &fieldError{fieldEntrySpread, "it must be from 0 to 600 (10 minutes)"}
	}
	return nil
}

// requireEntryKeys refuses a sale for which no buyer could get an entry ticket.
func (a *admin) requireEntryKeys(needed bool) error {
	if !needed || a.Entry != nil && a.Entry.HasKeys() {
		return nil
	}
	return fieldError{fieldEntryTicket, "this api has no keys to give entry tickets with: set ENTRY_TICKET_KEYS first"}
}
