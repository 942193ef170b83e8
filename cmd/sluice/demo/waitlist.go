package demo

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"sluice/internal/buyers"
	"sluice/pipeline"
)

// joiners is small, so that buyers can tell who of them came first.
var joiners = buyers.Pace{AtOnce: 8}

// joinWaitlist has some of those who got nothing wait for what will come free; some of them leave again.
func (s *session) joinWaitlist(ctx context.Context, random *rand.Rand, units int) error {
	losers := s.history.Losers()
	random.Shuffle(len(losers), func(i, j int) { losers[i], losers[j] = losers[j], losers[i] })
	losers = losers[:min(len(losers), int(math.Ceil(waitersPerUnit*float64(units))), pipeline.MaxWaitlist)]
	s.narrator.chapterf("Sold out. %s of those who got nothing join the waitlist", number(len(losers)))
	buyers.Each(ctx, losers, joiners, func(buyer uint32) { s.client.JoinWaitlist(ctx, saleID, buyer) })
	s.history.ChangesFrom(time.Now())
	waiting := s.history.Waiting()
	random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	leavers := waiting[:int(math.Ceil(leaveShare*float64(len(waiting))))]
	buyers.Each(ctx, leavers, joiners, func(buyer uint32) { s.client.LeaveWaitlist(ctx, saleID, buyer) })
	s.narrator.notef("%s leave again, from anywhere in the line; %s wait", number(len(leavers)),
		number(len(waiting)-len(leavers)))
	return ctx.Err()
}
