package console

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"sluice/httpapi/auth"
	"sluice/pipeline"
)

const (
	signInPath = root + "sign-in"
	// maxNextBytes bounds where a sign-in leads to.
	maxNextBytes = 1000
)

type signInView struct {
	Next    string
	Problem string
}

func (c *console) showSignIn(q *request) error {
	if _, _, err := c.identify(q.Request); err == nil {
		return q.redirect(next(q.FormValue("next")))
	}
	return q.render(http.StatusOK, "sign_in", page{Title: "Sign in", Body: signInView{Next: next(q.FormValue("next"))}})
}

// signIn takes a token from the body of a form, and nothing of it is kept: neither in the cookie nor in the log.
func (c *console) signIn(q *request) error {
	to := next(q.PostFormValue("next"))
	_, kept, err := c.Operators.SignIn(q.Request, strings.TrimSpace(q.PostFormValue("token")))
	if err != nil {
		return q.refuseSignIn(to, err)
	}
	sealed, err := c.sessions.seal(c.sessions.begin(kept))
	if err != nil {
		return err
	}
	http.SetCookie(q.w, cookie(q.Request, sealed, int(sessionLife.Seconds())))
	return q.redirect(to)
}

func (q *request) refuseSignIn(to string, err error) error {
	status := http.StatusUnauthorized
	var problem string
	var refused *auth.Refused
	var tooMany *auth.TooManyAttempts
	switch {
	case errors.As(err, &tooMany):
		status, problem = http.StatusTooManyRequests, sentence(tooMany.Error())
		q.w.Header().Set("Retry-After", strconv.Itoa(tooMany.Seconds()))
	case errors.As(err, &refused):
		problem = sentence(refused.Detail)
	case pipeline.KindOf(err) == pipeline.KindUnavailable:
		status = http.StatusServiceUnavailable
		problem = "Postgres does not answer, and nothing is known of this token here. Try again in some seconds."
	default:
		return err
	}
	return q.render(status, "sign_in", page{Title: "Sign in", Body: signInView{Next: to, Problem: problem}})
}

func (c *console) signOut(q *request) error {
	c.sessions.end(q.session)
	http.SetCookie(q.w, cookie(q.Request, "", -1))
	return q.redirect(signInPath)
}

// next is where a sign-in leads to: a page of this console, whatever the form says.
func next(to string) string {
	u, err := url.Parse(to)
	switch {
	case err != nil, to == "", len(to) > maxNextBytes, u.IsAbs(), u.Host != "", u.User != nil,
		strings.ContainsAny(to, "\\\r\n"), !strings.HasPrefix(path.Clean(u.Path)+"/", root),
		strings.HasPrefix(u.Path, "//"), u.Path == signInPath:
		return root
	}
	return u.RequestURI()
}
