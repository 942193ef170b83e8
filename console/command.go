package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/idempotency"
)

// plan is a change as it is shown before it is made: a dry run. Nothing has been done when somebody sees it.
type plan struct {
	Title   string   // what would be done, to what
	Lines   []change // what would be different
	Effects []string // what that means, in words
	Refused string   // why it can't be done now; there is no button then
	Button  string
	Danger  bool   // it can't be undone
	Type    string // what must be typed, where it can't be undone
	Fields  []field
	Path    string // where the form goes
	Back    string // the page that it came from

	// For the form; set by confirm.
	Key       string
	FormToken string
	MaxReason int
}

// change is one value, before and after.
type change struct{ What, Now, Then string }

// field is a hidden value of the form: what was asked for, so that what was shown is what is done.
type field struct{ Name, Value string }

// confirm shows a dry run, with a key that makes the change happen once, however often the form is sent.
func (q *request) confirm(section string, p plan) error {
	p.Key, p.FormToken, p.MaxReason = uuid.NewString(), q.c.sessions.formToken(q.session), pipeline.MaxNoteBytes
	return q.render(http.StatusOK, "confirm", page{Title: p.Title, Section: section, Body: p})
}

// command makes a change under the key of its form, with its reason, and leads to the page that shows the result. A
// form that comes twice gets the answer of the first.
func (q *request) command(typed string, do func(ctx context.Context, actor string) error, to string) error {
	reason := strings.TrimSpace(q.PostFormValue("reason"))
	if err := pipeline.ValidateReason(reason); err != nil {
		return pipeline.Errorf(pipeline.KindInvalid, "say why, in 1 to %d bytes without line breaks; nothing was changed",
			pipeline.MaxNoteBytes)
	}
	if typed != "" && strings.TrimSpace(q.PostFormValue("typed")) != typed {
		return pipeline.Errorf(pipeline.KindInvalid,
			"this can't be undone, and what you typed is not %q; go back and type it; nothing was changed", typed)
	}
	key := q.PostFormValue("key")
	if err := idempotency.ValidateKey(key); err != nil {
		return err
	}
	ctx := auditlog.Because(q.Context(), reason)
	answer, _, err := q.c.Requests.Once(ctx, idempotency.NewRequest(key, "console", q.URL.Path, q.asked()),
		func(ctx context.Context) (idempotency.Answer, idempotency.Verdict, error) {
			return answerOf(do(ctx, q.who.Actor()), to)
		})
	if err != nil {
		return err
	}
	if answer.Status != http.StatusSeeOther {
		return &refusal{answer.Status, "Not possible now", string(answer.Body)}
	}
	return q.redirect(to)
}

// asked is what a form asks for: all of it but what is of the session.
func (q *request) asked() string {
	form := url.Values{}
	for name, values := range q.PostForm {
		if name != "form_token" && name != "key" {
			form[name] = values
		}
	}
	return form.Encode()
}

// answerOf says what becomes of a key. What the state of things forbids is an answer; what a store did not do may be
// tried again with the same form; what could not be meant leaves the key free.
func answerOf(err error, to string) (idempotency.Answer, idempotency.Verdict, error) {
	var e *pipeline.Error
	switch {
	case err == nil:
		header := map[string]string{"Location": to}
		return idempotency.Answer{Status: http.StatusSeeOther, Header: header}, idempotency.Final, nil
	case idempotency.IsForNow(err):
		return idempotency.Answer{}, idempotency.Repeat, err
	case errors.As(err, &e) && (e.Kind == pipeline.KindConflict || e.Kind == pipeline.KindNotFound):
		return idempotency.Answer{Status: http.StatusConflict, Body: []byte(e.Message)}, idempotency.Final, nil
	case errors.As(err, &e) && e.Kind == pipeline.KindInvalid:
		return idempotency.Answer{}, idempotency.Forget, err
	default:
		return idempotency.Answer{}, idempotency.Repeat, err
	}
}

// doneTexts are what is said after a change, by the word in the address: nothing of an address is shown as it is.
var doneTexts = map[string]string{
	"pause": "The sale is paused.", "resume": "The sale is resumed.", "close": "The sale is closed.",
	"restock": "The units are added.", "reschedule": "The window is changed.",
	"reduce": "The units are taken out.", "replay": "The letter is replayed.", "discard": "The letter is discarded.",
}

// done is the address of a page that says what was done.
func done(path, verb string) string { return fmt.Sprintf("%s?done=%s", path, verb) }
