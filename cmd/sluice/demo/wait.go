package demo

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"sluice/pipeline"
)

// joinersAtOnce is small, so that buyers can tell who of them came first.
const joinersAtOnce = 8

// queueUp has some of those who got nothing wait for what will come free; some of them leave again.
func (s *show) queueUp(ctx context.Context, random *rand.Rand, units int) error {
	losers := s.history.losers()
	random.Shuffle(len(losers), func(i, j int) { losers[i], losers[j] = losers[j], losers[i] })
	losers = losers[:min(len(losers), int(math.Ceil(waitersPerUnit*float64(units))), pipeline.MaxWaitlist)]
	s.voice.chapterf("Sold out. %s of those who got nothing join the waitlist", number(len(losers)))
	swarm(ctx, losers, joinersAtOnce, func(buyer int) {
		asked := time.Now()
		got, err := s.client.call(ctx, http.MethodPost, "/waitlist", (ask{buyer: buyer}).user(), `{"quantity":1}`)
		if err != nil {
			s.unanswered(ctx, (ask{buyer: buyer}).user()+" joins the waitlist", err)
			return
		}
		s.history.joined(buyer, asked, got)
	})
	s.history.changes(time.Now())
	waiting := s.history.waiting()
	random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	leavers := waiting[:int(math.Ceil(leaveShare*float64(len(waiting))))]
	swarm(ctx, leavers, joinersAtOnce, func(buyer int) {
		got, err := s.client.call(ctx, http.MethodDelete, "/waitlist", (ask{buyer: buyer}).user(), "")
		if err != nil {
			s.unanswered(ctx, (ask{buyer: buyer}).user()+" leaves the waitlist", err)
			return
		}
		s.history.leftList(buyer, got)
	})
	s.voice.notef("%s leave again, from anywhere in the line; %s wait", number(len(leavers)), number(len(waiting)-len(leavers)))
	return ctx.Err()
}
