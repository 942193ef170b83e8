package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline"
)

// saleVerb is a change of a sale: what is asked for it, and what it would do.
type saleVerb struct {
	name, button string
	inputs       []input
	// plan reads what was asked for, and says what it would do. Errors: KindInvalid, for what can't be meant.
	plan func(s *planned, q *request) error
}

// input is a value that somebody types for a change.
type input struct {
	Name, Label, Type, Help, Value string
	Min                            string
}

// planned is a change of a sale on its way from what was asked for to what is shown and done.
type planned struct {
	plan
	sale   *pipeline.Sale
	view   saleView
	change pipeline.SaleChange
}

var saleVerbs = []saleVerb{
	{name: "pause", button: "Pause", plan: planPause},
	{name: "resume", button: "Resume", plan: planResume},
	{name: "restock", button: "Restock", plan: planRestock, inputs: []input{{
		Name: "add", Label: "Units to add", Type: "number", Min: "1",
		Help: "How many more there are. Units that are taken away are a reduction: sluice sale reduce.",
	}}},
	{name: "reschedule", button: "Reschedule", plan: planReschedule, inputs: []input{
		{Name: "opens", Label: "Opens at (UTC)", Type: "datetime-local", Help: "Leave it as it is to keep it."},
		{Name: "closes", Label: "Closes at (UTC)", Type: "datetime-local", Help: "Leave it as it is to keep it."},
	}},
	{name: "close", button: "Close", plan: planClose},
}

// versionField is the version of the sale that a dry run was of: if it has changed since, nothing is done.
const versionField = "version"

// askView is a form for what a change needs to be told.
type askView struct {
	Sale   *pipeline.Sale
	Title  string
	Inputs []input
	Path   string
	Back   string
}

func (c *console) saleVerb(q *request) (saleVerb, *planned, error) {
	sale, err := c.sale(q)
	if err != nil {
		return saleVerb{}, nil, err
	}
	for _, verb := range saleVerbs {
		if verb.name == q.PathValue("verb") {
			back := root + "sales/" + sale.ID
			return verb, &planned{
				sale: sale, view: c.saleNow(q.Context(), sale, q.who.Role),
				plan: plan{
					Title: verb.button + " " + sale.Title, Button: verb.button, Back: back, Path: back + "/change/" + verb.name,
					Fields: []field{{versionField, strconv.FormatInt(sale.Version, 10)}},
				},
			}, nil
		}
	}
	return saleVerb{}, nil, pipeline.Errorf(pipeline.KindNotFound, "there is no such change")
}

// planSale asks for what a change needs to be told, and then shows what it would do.
func (c *console) planSale(q *request) error {
	verb, p, err := c.saleVerb(q)
	if err != nil {
		return err
	}
	told := func(in input) bool { return q.URL.Query().Has(in.Name) }
	if len(verb.inputs) > 0 && !slices.ContainsFunc(verb.inputs, told) {
		ask := askView{Sale: p.sale, Title: p.Title, Path: p.Path, Back: p.Back}
		for _, in := range verb.inputs {
			switch in.Name {
			case "opens":
				in.Value = p.sale.OpensAt.UTC().Format(inputTime)
			case "closes":
				in.Value = p.sale.ClosesAt.UTC().Format(inputTime)
			}
			ask.Inputs = append(ask.Inputs, in)
		}
		return q.render(http.StatusOK, "ask", page{Title: p.Title, Section: "Overview", Body: ask})
	}
	if err := verb.plan(p, q); err != nil {
		return err
	}
	if p.sale.State == pipeline.SaleClosed {
		p.Refused = "The sale is closed, which is final."
	}
	return q.confirm("Overview", p.plan)
}

// changeSale does what was shown.
func (c *console) changeSale(q *request) error {
	verb, p, err := c.saleVerb(q)
	if err != nil {
		return err
	}
	if err := verb.plan(p, q); err != nil {
		return err
	}
	version, err := strconv.ParseInt(q.PostFormValue(versionField), 10, 64)
	if err != nil || version < 1 {
		return pipeline.Errorf(pipeline.KindInvalid, "this form is not complete: go back, and begin again")
	}
	p.change.IfVersion = version
	return q.command(p.Type, func(ctx context.Context, actor string) error {
		_, err := c.Publisher.Change(ctx, p.sale.ID, actor, p.change)
		return err
	}, done(p.Back, verb.name))
}

// units says how many units are in live orders, as far as that is known.
func (p *planned) units() (awaiting, paid string) {
	u := &p.view.Units
	if !p.view.Loaded {
		return "the units", "the units"
	}
	return plural(u.Awaiting, "unit"), plural(u.Paid+u.Confirmed, "unit")
}

func planPause(p *planned, _ *request) error {
	p.change.State = new(pipeline.SalePaused)
	p.Lines = []change{{"Buyers see", words(p.view.Phase), "paused"}}
	awaiting, _ := p.units()
	p.Effects = []string{
		"New orders are refused with sale-paused within a second. Nobody loses an order.",
		fmt.Sprintf("The %s that await payment can be paid, and expire as before.", strings.TrimPrefix(awaiting, "the ")),
		"The window goes on meanwhile: the sale closes at " + clock(p.sale.ClosesAt) + " UTC, unless you reschedule it.",
	}
	if p.sale.State == pipeline.SalePaused {
		p.Refused = "The sale is paused already."
	}
	return nil
}

func planResume(p *planned, q *request) error {
	p.change.State = new(pipeline.SaleActive)
	active := *p.sale
	active.State = pipeline.SaleActive
	then := active.Phase(q.c.Now())
	if then == "open" && p.view.Loaded && p.view.Units.Free == 0 {
		then = "sold_out"
	}
	p.Lines = []change{{"Buyers see", words(p.view.Phase), words(then)}}
	p.Effects = []string{"Buyers can order again within a second, first come, first served."}
	switch then {
	case "closed":
		p.Effects = []string{"Its window is over: nobody can order until it is rescheduled."}
	case "scheduled":
		p.Effects = []string{"It opens at " + clock(p.sale.OpensAt) + " UTC."}
	}
	if p.view.Loaded {
		p.Effects = append(p.Effects, sentence(plural(p.view.Units.Free, "unit")+" can be ordered"))
	}
	if p.sale.State == pipeline.SaleActive {
		p.Refused = "The sale is not paused."
	}
	return nil
}

func planClose(p *planned, _ *request) error {
	p.change.State = new(pipeline.SaleClosed)
	p.Danger, p.Type = true, p.sale.ID
	p.Lines = []change{{"Buyers see", words(p.view.Phase), "closed"}, {"State", string(p.sale.State), "closed, for good"}}
	awaiting, paid := p.units()
	p.Effects = []string{
		"This can't be undone: a closed sale is never opened again, restocked or rescheduled.",
		fmt.Sprintf("%s in paid orders stay sold. %s await payment: these orders can be paid still, and expire as before.",
			sentenceStart(paid), sentenceStart(awaiting)),
	}
	if p.view.Loaded {
		p.Effects = append(p.Effects, sentence(plural(p.view.Units.Free, "unit")+" stay unsold, and whatever comes back"))
	}
	if p.view.Units.Waiting > 0 {
		p.Effects = append(p.Effects, sentence(isAre(p.view.Units.Waiting, "buyer")+" on the waitlist, and get nothing any more"))
	}
	return nil
}

func sentenceStart(s string) string { return strings.TrimSuffix(sentence(s), ".") }

func planRestock(p *planned, q *request) error {
	add, err := strconv.ParseInt(strings.TrimSpace(q.FormValue("add")), 10, 64)
	if err != nil || add < 1 || add > pipeline.MaxStock || p.sale.Total+add > pipeline.MaxStock {
		return pipeline.Errorf(pipeline.KindInvalid, "units to add: use 1 or more, so that the sale has %s at most",
			number(int64(pipeline.MaxStock)))
	}
	p.change.AddStock = add
	p.Button = "Add " + plural(add, "unit")
	p.Fields = append(p.Fields, field{"add", strconv.FormatInt(add, 10)})
	p.Lines = []change{{"Units in all", number(p.sale.Total), number(p.sale.Total + add)}}
	if p.view.Loaded {
		p.Lines = append(p.Lines, change{"Free", number(p.view.Units.Free), number(p.view.Units.Free + add)})
	}
	p.Effects = []string{"Buyers can order them within a second, as long as the sale is open."}
	if w := p.view.Units.Waiting; w > 0 {
		p.Effects = []string{fmt.Sprintf("They go to the waitlist first, in its order: %s. What is left can be ordered.",
			isAre(w, "buyer")+" on it")}
	}
	p.Effects = append(p.Effects, "Units can be taken out again only while nobody has them.")
	return nil
}

// inputTime is what a browser's field for a time sends, with and without seconds; it has no zone, and is UTC here.
const inputTime = "2006-01-02T15:04"

func planReschedule(p *planned, q *request) error {
	for _, one := range []struct {
		name, what string
		was        time.Time
		to         **time.Time
	}{
		{"opens", "Opens at", p.sale.OpensAt, &p.change.OpensAt},
		{"closes", "Closes at", p.sale.ClosesAt, &p.change.ClosesAt},
	} {
		text := strings.TrimSpace(q.FormValue(one.name))
		if text == "" || text == one.was.UTC().Format(inputTime) {
			continue
		}
		at, err := time.Parse(inputTime, text)
		if err != nil {
			if at, err = time.Parse(inputTime+":05", text); err != nil {
				return pipeline.Errorf(pipeline.KindInvalid, "%s: use a date and a time, such as 2026-11-23T10:00",
					strings.ToLower(one.what))
			}
		}
		*one.to = &at
		p.Fields = append(p.Fields, field{one.name, text})
		p.Lines = append(p.Lines, change{one.what, clock(one.was) + " UTC", clock(at) + " UTC"})
	}
	after := *p.sale
	if p.change.OpensAt != nil {
		after.OpensAt = *p.change.OpensAt
	}
	if p.change.ClosesAt != nil {
		after.ClosesAt = *p.change.ClosesAt
	}
	if err := after.Validate(); err != nil {
		return err
	}
	now := q.c.Now()
	p.Lines = append(p.Lines, change{"Buyers see", words(p.view.Phase), words(after.Phase(now))})
	p.Effects = []string{"Orders that exist stay as they are; their time to pay does not change."}
	if p.change.OpensAt == nil && p.change.ClosesAt == nil {
		p.Refused = "Nothing would change: these are the times that it has."
	}
	if !after.ClosesAt.After(now) {
		p.Refused = "It would be over already: nobody could order. Close the sale to end it now."
	}
	return nil
}
