package config

import (
	"fmt"
	"time"

	"sluice/httpapi/entry"
)

// EntryTickets are how buyers get entry tickets.
type EntryTickets struct {
	Keys []entry.Key   // ENTRY_TICKET_KEYS; the first one signs, all verify
	Lead time.Duration // ENTRY_TICKET_LEAD
	Hook entry.HookOptions
}

// The values of ENTRY_HOOK_FAIL.
const (
	failClosed = "closed"
	failOpen   = "open"
)

// entrySettings are those of entry tickets.
func entrySettings(c *Config) []setting {
	e := &c.Entry
	return []setting{
		{
			name: "ENTRY_TICKET_KEYS", secret: true, parse: entryKeys(&e.Keys),
			help: "what entry tickets are signed with: id:base64 of 32 to 64 bytes, or several, separated by commas; the first " +
				"one signs, all verify; the same at all apis. Without it no sale can ask for entry tickets",
		},
		{
			name: "ENTRY_TICKET_LEAD", fallback: entry.DefaultLead.String(),
			parse: between(&e.Lead, entry.MinLead, entry.MaxLead),
			help:  "how long before the opening of a sale entry tickets are given, 1m to 12h",
		},
		{
			name: "ENTRY_HOOK_URL", secret: true, hides: passwordInURL, parse: hookURL(&e.Hook.URL),
			help: "your own check, which an api asks before it gives an entry ticket (a captcha, a queue, a rule): a POST that is " +
				"answered with 2xx, or anything else but 5xx to refuse; without it every buyer gets one",
		},
		{
			name: "ENTRY_HOOK_TIMEOUT", fallback: entry.DefaultHookTimeout.String(),
			parse: between(&e.Hook.Timeout, 10*time.Millisecond, entry.MaxHookTimeout),
			help:  "how long your check may take, 10ms to 4s",
		},
		{
			name: "ENTRY_HOOK_FAIL", fallback: failClosed, parse: checked(&e.Hook.FailOpen, func(s string) (bool, bool) {
				return s == failOpen, s == failOpen || s == failClosed
			}, "is neither closed nor open"),
			help: "what a buyer gets while your check gives no answer: closed (a 503) or open (an entry ticket)",
		},
	}
}

// entryKeys parses keys. Its error never repeats one.
func entryKeys(into *[]entry.Key) func(string) error {
	return func(text string) error {
		keys, err := entry.ParseKeys(text)
		if err == nil {
			*into = keys
		}
		return err
	}
}

// hookURL never repeats the text: it may contain a password.
func hookURL(into *string) func(string) error {
	return func(text string) error {
		*into = text
		return entry.HookOptions{URL: text}.Validate()
	}
}

func between(into *time.Duration, least, most time.Duration) func(string) error {
	return checked(into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= least && d <= most
	}, fmt.Sprintf("is not a time from %s to %s", least, most))
}
