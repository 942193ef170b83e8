package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// formats are the functions of the templates.
var formats = template.FuncMap{
	"number": number[int64], "count": number[int], "rate": rate, "age": age, "instant": view.Time,
	"clock": clock, "precise": precise,
	"money": payments.MoneyText, "words": func(s any) string { return words(fmt.Sprint(s)) },
	"tone": toneOf[string], "zero": func(t time.Time) bool { return t.IsZero() },
	"since": func(now, t time.Time) string { return age(now.Sub(t)) }, "plural": pluralOf, "sentence": sentence,
	"percent": percent, "short": short, "asset": func(name string) string { return embedded.paths[name] },
	"amount": func(o foundOrder) string { return formatMoney(o.UnitPrice*int64(o.Quantity), o.Currency) },
	"paid":   func(p payments.Payment) string { return formatMoney(p.Amount, p.Currency) },
}

// number has a comma after each three digits, as people read it.
func number[T int | int64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	digits := strings.TrimPrefix(text, "-")
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	if len(digits) < len(text) {
		return "−" + out.String()
	}
	return out.String()
}

// plural is a number of things: 1 unit, 2 units.
func plural[T int | int64](n T, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}

// pluralOf is plural for templates, which have numbers of several types.
func pluralOf(n any, one string) (string, error) {
	switch n := n.(type) {
	case int:
		return plural(n, one), nil
	case int64:
		return plural(n, one), nil
	}
	return "", fmt.Errorf("%v is no number", n)
}

// rate is a number per second; less than 0 is one that is not known yet.
func rate(perSecond float64) string {
	switch {
	case perSecond < 0:
		return "…"
	case perSecond < 10 && perSecond != math.Trunc(perSecond):
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	default:
		return number(int64(math.Round(perSecond)))
	}
}

// age is a duration with the two digits that matter.
func age(d time.Duration) string {
	switch d = max(0, d); {
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	default:
		return strconv.Itoa(int(d.Hours()/24)) + " days"
	}
}

// clock is an instant as people read it, with its day: UTC, as everywhere.
func clock(t time.Time) string {
	if t.IsZero() {
		return "—"
	}
	return t.UTC().Format("2 Jan 2006, 15:04:05")
}

// precise is an instant where milliseconds tell what came first.
func precise(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05.000") }

// words are a status or an outcome without its underscores.
func words[T ~string](s T) string {
	return strings.ReplaceAll(strings.ReplaceAll(string(s), "_", " "), "-", " ")
}

// short is the beginning of an id, for a table on a phone; the whole one is in the link.
func short(id string) string {
	if len(id) <= 13 {
		return id
	}
	return id[:8] + "…" + id[len(id)-4:]
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return "0"
	}
	return strconv.FormatFloat(100*float64(max(0, part))/float64(whole), 'f', 2, 64)
}

// toneOf is the colour of a status; it never stands alone, the word is beside it.
func toneOf[T ~string](s T) string {
	switch string(s) {
	case "open", "paid", "confirmed", "alive", "replayed", "delivered":
		return "good"
	case "awaiting_payment", "queued", "waiting", "scheduled", "sold_out":
		return "info"
	case "paused", "refund_due", "returned", "expired", "repeated":
		return "warn"
	case "rejected", "dead", "disabled", "refused":
		return "bad"
	default:
		return "plain"
	}
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if s == "" || first == utf8.RuneError {
		return s
	}
	s = string(unicode.ToUpper(first)) + s[size:]
	if strings.ContainsAny(s[len(s)-1:], ".!?…") {
		return s
	}
	return s + "."
}

// messageOf is what an error says to people.
func messageOf(err error) string {
	if e, ok := err.(*pipeline.Error); ok { //nolint:errorlint // the outermost one has the message for people
		return e.Message
	}
	return fmt.Sprint(err)
}

// formatMoney is an amount of minor units; "—" where there is none.
func formatMoney(amount int64, currency string) string {
	if text := payments.MoneyText(amount, currency); text != "" {
		return text
	}
	return "—"
}
