package main

import (
	"time"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/operator"
)

// tokenCmd groups what can be done to operators' tokens.
type tokenCmd struct {
	Add    tokenAdd    `cmd:"" help:"Make a token for a person or a program. Its text is shown once."`
	Ls     tokenList   `cmd:"" aliases:"list" help:"List tokens: whose they are, what they may do, and until when."`
	Revoke tokenRevoke `cmd:"" help:"End a token. Every api refuses it within seconds."`
}

type tokenAdd struct {
	Name    string `arg:"" help:"Whose it is, for the audit log: ann, for instance, or deploy-bot."`
	Role    string `required:"" placeholder:"ROLE" help:"read (look), operate (change sales, orders and money too) or admin (endpoints, repairs and erasures too)."`
	Expires string `default:"+2160h" placeholder:"TIME" help:"+720h or RFC 3339; default +2160h, which are 90 days. At most 366 days from now."`
}

// Run makes the token.
func (c *tokenAdd) Run(a *app) error {
	role, err := operator.ParseRole(c.Role)
	if err != nil {
		return err
	}
	expires, err := when(c.Expires, time.Now())
	if err != nil {
		return err
	}
	token, text, err := operator.New(c.Name, role, expires, actor())
	if err != nil {
		return err
	}
	return a.withPostgres(func(s *stores) error {
		added, err := s.postgres.OperatorTokens().Add(a.ctx, token)
		if err != nil {
			return err
		}
		return a.answer(view.NewTokenWithText(&added, time.Now(), text),
			"Token %s of %s may %s until %s. Its text, which is not shown again:\n%s",
			added.ID, added.Name, roleText[added.Role], shortTime(added.ExpiresAt), text)
	})
}

var roleText = map[operator.Role]string{
	operator.Read: "look at everything", operator.Operate: "change sales, orders and money",
	operator.Admin: "do everything",
}

type tokenList struct {
	All bool `help:"Expired and revoked ones, too."`
}

// Run lists the tokens, by name.
func (c *tokenList) Run(a *app) error {
	return a.withPostgres(func(s *stores) error {
		tokens, err := s.postgres.OperatorTokens().List(a.ctx, c.All)
		if err != nil {
			return err
		}
		now := time.Now()
		t := table.New("ID", "NAME", "ROLE", "STATE", "EXPIRES", "MADE", "BY")
		for i := range tokens {
			token := &tokens[i]
			t.Row(token.ID, token.Name, string(token.Role), string(token.State(now)), shortTime(token.ExpiresAt),
				shortTime(token.CreatedAt), table.Clean(token.CreatedBy))
		}
		return printList(a, view.NewTokens(tokens, now), t, "No tokens; sluice token add makes one.")
	})
}

type tokenRevoke struct {
	ID string `arg:"" help:"Id of the token, as sluice token ls shows it."`
}

// Run revokes the token.
func (c *tokenRevoke) Run(a *app) error {
	return a.withPostgres(func(s *stores) error {
		token, changed, err := s.postgres.OperatorTokens().Revoke(a.ctx, c.ID, actor())
		if err != nil {
			return advise(err, pipeline.KindNotFound, "sluice token ls shows them")
		}
		v := view.NewToken(&token, time.Now())
		if !changed {
			return a.answer(v, "Token %s of %s was revoked before, by %s; nothing was changed.", token.ID, token.Name,
				table.Clean(token.RevokedBy))
		}
		return a.answer(v, "Token %s of %s is revoked; every api refuses it within %s.", token.ID, token.Name,
			operator.Freshness)
	})
}
