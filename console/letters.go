package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// lettersView are dead letters, as a filter chooses them.
type lettersView struct {
	Sale, Reason string
	All          bool
	Letters      []deadletter.Letter
	Reasons      []reasonCount // of those that are shown before the reason chooses
	Cut          bool          // there are more than were looked at
}

// reasonCount is a reason with the number of letters that the rest of the filter chooses.
type reasonCount struct {
	Reason string
	N      int
	Path   string
	On     bool
}

func (c *console) listLetters(q *request) error {
	form := q.URL.Query()
	v := lettersView{Sale: strings.TrimSpace(form.Get("sale")), Reason: form.Get("reason"), All: form.Get("all") != ""}
	letters, err := c.Store.Letters(q.Context(), deadletter.Filter{SaleID: v.Sale, All: v.All})
	if err != nil {
		return err
	}
	v.Cut = len(letters) == deadletter.MaxLetters
	counts := map[string]int{}
	for i := range letters {
		counts[letters[i].Reason]++
		if v.Reason == "" || letters[i].Reason == v.Reason {
			v.Letters = append(v.Letters, letters[i])
		}
	}
	v.Reasons = append(v.Reasons, v.reason("", len(letters)))
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v.Reasons = append(v.Reasons, v.reason(name, counts[name]))
	}
	return q.render(http.StatusOK, "letters", page{Title: "Dead letters", Section: "Dead letters", Body: v})
}

func (v *lettersView) reason(name string, n int) reasonCount {
	form := url.Values{}
	for key, value := range map[string]string{"sale": v.Sale, "reason": name} {
		if value != "" {
			form.Set(key, value)
		}
	}
	if v.All {
		form.Set("all", "1")
	}
	return reasonCount{name, n, root + "dead-letters?" + form.Encode(), v.Reason == name}
}

// letterView is one letter.
type letterView struct {
	deadletter.Letter
	Meaning string // of its reason
	Fields  []field
	Waits   bool
}

// meanings say what a reason means to an operator.
var meanings = map[string]string{
	deadletter.Undecodable: "The entry in the stream was not written by this system, or was changed: no order can be read " +
		"from it. Repair the fields that a replay needs, or discard it.",
	deadletter.RedisLost: "Redis lost this order after it was accepted, and its units are taken by others. A replay asks for " +
		"units that are free now.",
	deadletter.Refused: "Postgres refuses a value of it. The error says which; a replay can set another one.",
}

func letterOf(q *request) (int64, error) {
	id, err := strconv.ParseInt(q.PathValue("id"), 10, 64)
	if err != nil {
		return 0, pipeline.Errorf(pipeline.KindNotFound, "there is no such dead letter: their ids are numbers")
	}
	return id, nil
}

func (c *console) letter(q *request) (letterView, error) {
	id, err := letterOf(q)
	if err != nil {
		return letterView{}, err
	}
	letter, err := c.Store.Letter(q.Context(), id)
	v := letterView{Letter: letter, Meaning: meanings[letter.Reason], Waits: letter.ResolvedAt.IsZero()}
	for name, value := range letter.Payload {
		v.Fields = append(v.Fields, field{name, textOf(value)})
	}
	slices.SortFunc(v.Fields, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	return v, err
}

func (c *console) showLetter(q *request) error {
	v, err := c.letter(q)
	if err != nil {
		return err
	}
	return q.render(http.StatusOK, "letter", page{
		Title: fmt.Sprintf("Dead letter %d", v.ID), Section: "Dead letters", Body: v,
	})
}

// planLetter shows what a replay or a discard would do.
func (c *console) planLetter(q *request) error {
	v, err := c.letter(q)
	if err != nil {
		return err
	}
	back := root + "dead-letters/" + strconv.FormatInt(v.ID, 10)
	p := plan{Back: back, Path: back + "/" + q.PathValue("verb")}
	if !v.Waits {
		p.Refused = "It is " + string(v.Resolution) + " already, which is final."
	}
	switch q.PathValue("verb") {
	case "replay":
		c.planReplay(q, &v, &p)
	case "discard":
		p.Title, p.Button = fmt.Sprintf("Discard dead letter %d", v.ID), "Discard"
		p.Danger, p.Type = true, strconv.FormatInt(v.ID, 10)
		p.Lines = []change{{"The letter", "waits", "discarded, for good"}}
		p.Effects = []string{
			"No order will be made of it. Units and slot were given back when it was buried: the buyer can order again.",
			"The reason that you give is kept with the letter; tell the buyer, who has a receipt.",
		}
	default:
		return pipeline.Errorf(pipeline.KindNotFound, "there is no such change")
	}
	return q.confirm("Dead letters", p)
}

func (c *console) planReplay(q *request, v *letterView, p *plan) {
	p.Title, p.Button = fmt.Sprintf("Replay dead letter %d", v.ID), "Replay"
	set := repairsOf(q.URL.Query())
	want := func(name string) string {
		if repaired, given := set[name]; given {
			return repaired
		}
		return textOf(v.Payload[name])
	}
	for _, one := range []struct{ name, what string }{{"s", "Sale"}, {"u", "Buyer"}, {"q", "Units"}} {
		p.Lines = append(p.Lines, change{one.what, textOf(v.Payload[one.name]), want(one.name)})
	}
	for name, value := range set {
		p.Fields = append(p.Fields, field{"set_" + name, value})
	}
	p.Effects = []string{
		"An order is asked for as by the buyer, now: it takes units that are free, and keeps the limit per buyer.",
		"If that is not possible, nothing changes, and the letter waits on.",
	}
	if err := deadletter.ValidateRepairs(set); err != nil {
		p.Refused = sentence(messageOf(err))
		return
	}
	sale, err := c.Store.Sale(q.Context(), want("s"))
	if err != nil {
		p.Refused = "There is no sale " + want("s") + ": a replay would fail. Set the right one."
		return
	}
	p.Lines = append(p.Lines, change{"The sale is", "", words(sale.Phase(q.c.Now()))})
	if units, err := c.Overview.Units(q.Context(), sale); err == nil {
		p.Lines = append(p.Lines, change{"Units that are free", "", number(units.Free)})
	}
}

// repairsOf are the fields that somebody set, without those left empty.
func repairsOf(form url.Values) map[string]string {
	set := map[string]string{}
	for _, name := range deadletter.RepairFields {
		if value := strings.TrimSpace(form.Get("set_" + name)); value != "" {
			set[name] = value
		}
	}
	return set
}

func (c *console) resolveLetter(q *request) error {
	id, err := letterOf(q)
	if err != nil {
		return err
	}
	back := root + "dead-letters/" + strconv.FormatInt(id, 10)
	switch q.PathValue("verb") {
	case "replay":
		if err := q.ParseForm(); err != nil {
			return err
		}
		set := repairsOf(q.PostForm)
		return q.command("", func(ctx context.Context, actor string) error {
			_, err := c.Replayer.Replay(ctx, id, actor, set)
			return err
		}, done(back, "replay"))
	case "discard":
		note := strings.TrimSpace(q.PostFormValue("reason"))
		return q.command(strconv.FormatInt(id, 10), func(ctx context.Context, actor string) error {
			_, err := c.Replayer.Discard(ctx, id, actor, note)
			return err
		}, done(back, "discard"))
	}
	return pipeline.Errorf(pipeline.KindNotFound, "there is no such change")
}
