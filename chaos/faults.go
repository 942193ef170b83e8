package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/internal/faultnet"
)

// fault is one fault as it happens. Both may fail when what they strike is not there; undo is called whenever do was.
type fault interface {
	// do brings the fault about. For one that lasts, it returns once it has begun.
	do(ctx context.Context) error
	// undo ends it, and returns what it came to: how many replies were lost, how many entries poisoned. 0 means that it
	// never really happened.
	undo(ctx context.Context) (hits int, err error)
}

// newFault makes the fault of a step.
func (s *stage) newFault(step Step) fault {
	if step.Hand != "" {
		return &across{fault: s.bareFault(step), link: s.cast.links[step.Hand+">postgres"]}
	}
	return s.bareFault(step)
}

func (s *stage) bareFault(step Step) fault {
	c := s.cast
	switch step.Kind {
	case KillAPI:
		return &killActor{actor: c.actor(step.Target)}
	case KillWorker:
		return &killBusy{killActor{actor: c.actor(step.Target)}, c.links[step.Target+">postgres"], step.Dice}
	case PauseWorker:
		return &pauseActor{actor: c.actor(step.Target)}
	case KillRedis:
		return &killServer{server: c.currentRedis()}
	case KillPostgres:
		return &killServer{server: c.servers.Postgres}
	case Cut:
		return &cutLink{link: c.links[step.Target]}
	case Slow:
		return &slowLink{link: c.links[step.Target], dice: step.Dice}
	case HalfOpen:
		return &freezeLink{link: c.links[step.Target]}
	case LostReply:
		return &loseReplies{link: c.links[step.Target], target: step.Target, dice: step.Dice}
	case ForgetScript:
		return &again{every: scriptEvery, act: c.forgetScripts}
	case KillClients:
		return &again{every: stormEvery, act: c.killClients}
	case EndBackends:
		return &again{every: stormEvery, act: c.endBackends}
	case Poison:
		return &addPoison{stage: s, dice: step.Dice}
	case FlushAll:
		return &flushAll{cast: c}
	case OldFile:
		return &oldFile{cast: c, dice: step.Dice}
	case Failover:
		return &failover{cast: c, dice: step.Dice}
	}
	return impossible{step}
}

// impossible is a fault that nobody knows how to bring about.
type impossible struct{ step Step }

func (i impossible) do(context.Context) error { return fmt.Errorf("%s: not known", i.step.Kind) }

func (i impossible) undo(context.Context) (int, error) { return 0, nil }

// killActor kills a process of ours; another one takes its part when the fault is over.
type killActor struct {
	actor *actor
	hits  int
}

func (f *killActor) do(ctx context.Context) error {
	if err := f.actor.kill(ctx); err != nil {
		return err
	}
	f.hits++
	return nil
}

func (f *killActor) undo(ctx context.Context) (int, error) {
	f.actor.release()
	_, err := f.actor.running(ctx)
	return f.hits, err
}

// killBusy kills a worker that has fetched a batch and can't persist it, because its way to Postgres is cut: whatever it had
// acknowledged by then would be gone.
type killBusy struct {
	killActor
	link *faultnet.Proxy
	dice uint64
}

// A worker at work fetches a batch every few milliseconds, and then holds it for as long as it has to.
const leastBusy, mostBusy = 100 * time.Millisecond, 800 * time.Millisecond

func (f *killBusy) do(ctx context.Context) error {
	if _, err := f.actor.running(ctx); err != nil {
		return err
	}
	f.link.Cut()
	sleep(ctx, share(f.dice, leastBusy, mostBusy))
	return f.killActor.do(ctx)
}

func (f *killBusy) undo(ctx context.Context) (int, error) {
	f.link.Heal()
	return f.killActor.undo(ctx)
}

// across is a loss of Redis' data during which one worker has events in hand: it fetched them before, and what it asked
// Postgres to write arrives when Redis is rebuilt and sells again.
type across struct {
	fault
	link *faultnet.Proxy
}

const (
	handLead = 300 * time.Millisecond // for a worker to have a batch in hand
	// handTail is how long after the loss it still has it: until a verification has begun, has read Postgres, and has opened
	// the partitions again.
	handTail = 3 * time.Second
)

func (f *across) do(ctx context.Context) error {
	f.link.Freeze()
	sleep(ctx, handLead)
	return f.fault.do(ctx)
}

func (f *across) undo(ctx context.Context) (int, error) {
	hits, err := f.fault.undo(ctx)
	sleep(ctx, handTail)
	f.link.Thaw()
	return hits, err
}

// pauseActor stops a process in its tracks, long enough that others take its work, and lets it go on.
type pauseActor struct {
	actor  *actor
	resume func() error
	hits   int
}

func (f *pauseActor) do(ctx context.Context) error {
	m, err := f.actor.running(ctx)
	if err != nil {
		return err
	}
	if err := m.Pause(); err != nil {
		return err
	}
	f.resume = m.Resume
	f.hits++
	return nil
}

func (f *pauseActor) undo(context.Context) (int, error) {
	if f.resume == nil {
		return 0, nil
	}
	return f.hits, f.resume()
}

// killable is Redis or Postgres.
type killable interface {
	Kill() error
	Restart(ctx context.Context) error
}

// killServer is a power cut at Redis or Postgres.
type killServer struct {
	server killable
	hits   int
}

func (f *killServer) do(context.Context) error {
	if err := f.server.Kill(); err != nil {
		return err
	}
	f.hits++
	return nil
}

func (f *killServer) undo(ctx context.Context) (int, error) { return f.hits, f.server.Restart(ctx) }

type cutLink struct{ link *faultnet.Proxy }

func (f *cutLink) do(context.Context) error {
	f.link.Cut()
	return nil
}

func (f *cutLink) undo(context.Context) (int, error) {
	f.link.Heal()
	return 1, nil
}

// slowLink holds every reply back by slowest at most.
type slowLink struct {
	link *faultnet.Proxy
	dice uint64
}

func (f *slowLink) do(context.Context) error {
	f.link.Slow(share(f.dice, fastest, slowest))
	return nil
}

func (f *slowLink) undo(context.Context) (int, error) {
	f.link.Slow(0)
	return 1, nil
}

// freezeLink is a half-open connection: both ends believe that it stands.
type freezeLink struct{ link *faultnet.Proxy }

func (f *freezeLink) do(context.Context) error {
	f.link.Freeze()
	return nil
}

func (f *freezeLink) undo(context.Context) (int, error) {
	f.link.Thaw()
	return 1, nil
}

// loseReplies has a server do what it is asked and loses the answer.
type loseReplies struct {
	link   *faultnet.Proxy
	target string
	dice   uint64
	before int
}

// Every process asks everything it is connected to within a few seconds, if only for its health.
const anyReplyLimit, anyReplyEvery = 20 * time.Second, 250 * time.Millisecond

// answers are the texts by which the replies to lose are chosen, by what the link leads to. "" loses the next ones,
// whatever they answer.
var answers = map[string][]string{
	"api>redis":       {"evalsha", "evalsha", "{seq}", ""},
	"worker>redis":    {"xreadgroup", "xreadgroup", "evalsha", ""},
	"worker>postgres": {"drop-", "big", ""}, // the arguments of the insert name the sale
	"api>postgres":    {""},
	"buyers>api":      {""},
}

func (f *loseReplies) do(context.Context) error {
	f.before = f.link.Lost()
	program := strings.NewReplacer("-1", "", "-2", "", "-3", "").Replace(f.target)
	texts := answers[program]
	text := texts[f.dice%uint64(len(texts))]
	n := 1 + int(f.dice>>8%8)
	if text == "" {
		f.link.DropReplies(n)
	} else {
		f.link.DropReplyTo(text, n)
	}
	return nil
}

// undo makes sure that at least one was lost: what was waited for may not have been asked.
func (f *loseReplies) undo(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, anyReplyLimit)
	defer cancel()
	for f.link.Lost() == f.before && ctx.Err() == nil {
		f.link.DropReplies(1)
		sleep(ctx, anyReplyEvery)
		f.link.KeepReplies()
	}
	f.link.KeepReplies()
	return f.link.Lost() - f.before, nil
}

// A slow link holds each reply back by one such time. Beyond, it would be a frozen one: calls give up.
const fastest, slowest = 5 * time.Millisecond, 60 * time.Millisecond

// share makes a time between two of a die.
func share(dice uint64, least, most time.Duration) time.Duration {
	return least + time.Duration(dice%uint64(most-least))
}
