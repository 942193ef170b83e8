package view

import (
	"time"

	"sluice/pipeline/operator"
)

// Token is an operator's token.
type Token struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"` // whose it is
	Role      string  `json:"role"` // read, operate or admin
	State     string  `json:"state"`
	CreatedAt string  `json:"created_at"`
	CreatedBy string  `json:"created_by"`
	ExpiresAt string  `json:"expires_at"`
	RevokedAt *string `json:"revoked_at"`
	RevokedBy *string `json:"revoked_by"`
	Text      string  `json:"token,omitempty"` // only in the answer to its making
}

// NewToken views a token without its text.
func NewToken(t *operator.Token, now time.Time) Token {
	return Token{
		ID: t.ID, Name: t.Name, Role: string(t.Role), State: string(t.State(now)), CreatedAt: Time(t.CreatedAt),
		CreatedBy: t.CreatedBy, ExpiresAt: Time(t.ExpiresAt), RevokedAt: TimeOrNil(t.RevokedAt),
		RevokedBy: textOrNil(t.RevokedBy),
	}
}

// NewTokenWithText views a token for the operator who has just made it.
func NewTokenWithText(t *operator.Token, now time.Time, text string) Token {
	v := NewToken(t, now)
	v.Text = text
	return v
}

// NewTokens views a list.
func NewTokens(list []operator.Token, now time.Time) []Token {
	return views(list, func(t *operator.Token) Token { return NewToken(t, now) })
}
