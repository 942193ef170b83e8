package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// listenTimeout bounds the first subscription. Without it one waits all the same, and polls.
	subscribeTimeout = time.Second
	// pingEvery: a subscription is asked for a sign of life that often. One that says nothing for twice as long is made anew;
	// whoever waits polls meanwhile.
	pingEvery = 3 * time.Second
	// deafPause comes between two tries to subscribe again.
	resubscribeBackoff = 100 * time.Millisecond
)

// ear hears who of us is woken. All who wait on one client share its one subscription, which is made when the first waits.
type subscriber struct {
	subscribing sync.Mutex // held while the first subscription is made

	mu      sync.Mutex // protects the rest
	pubsub  *redis.PubSub
	closed    bool
	waiters map[string]chan int64 // by id, with room for one call; nil: neither called nor asleep yet
}

// listen subscribes, if nobody has yet. When that fails we poll: the client subscribes by itself as soon as it can.
func (e *subscriber) subscribe(ctx context.Context, c *Client) {
	e.subscribing.Lock()
	defer e.subscribing.Unlock()
	e.mu.Lock()
	needed := e.pubsub == nil && !e.closed
	e.mu.Unlock()
	if !needed {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), subscribeTimeout)
	defer cancel()
	pubsub := c.rdb.Subscribe(ctx, c.channel)
	_, _ = pubsub.ReceiveTimeout(ctx, subscribeTimeout) // the confirmation: from here on no message is missed
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		_ = pubsub.Close()
		return
	}
	e.pubsub = pubsub
	c.running.Go(func() { keepAlive(c.closing, pubsub) })
	c.running.Go(func() { e.receive(c.closing, pubsub) })
}

// hear rings whoever is called, until the subscription is closed. It reads messages itself: through PubSub.Channel each would
// wake two goroutines more, on its way from the last holder to the next.
func (e *subscriber) receive(ctx context.Context, pubsub *redis.PubSub) {
	for {
		said, err := pubsub.Receive(withDeadlineOnly(ctx, 2*pingEvery))
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		if err != nil {
			select { // the next call subscribes again
			case <-time.After(resubscribeBackoff):
			case <-ctx.Done():
			}
			continue
		}
		if m, ok := said.(*redis.Message); ok {
			id, text, _ := strings.Cut(m.Payload, " ")
			fence, _ := strconv.ParseInt(text, 10, 64) // 0: he is to look
			e.notify(id, fence)
		}
	}
}

// keepAwake pings until ctx ends. What fails shows in hear.
func keepAlive(ctx context.Context, pubsub *redis.PubSub) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = pubsub.Ping(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// enter makes an id known, if we listen: from now on a call for it is not lost.
func (e *subscriber) register(id string) (listening bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pubsub == nil && !e.closed {
		return false
	}
	if e.waiters == nil {
		e.waiters = map[string]chan int64{}
	}
	e.waiters[id] = nil
	return true
}

// sleep returns where the id is called: with the fence of what it was handed, or 0 when it is to look. It returns nil, where
// nobody ever calls, when we could not listen.
func (e *subscriber) notification(id string) <-chan int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inbox(id)
}

// bell needs mu.
func (e *subscriber) inbox(id string) chan int64 {
	bell, known := e.waiters[id]
	if known && bell == nil {
		bell = make(chan int64, 1)
		e.waiters[id] = bell
	}
	return bell
}

func (e *subscriber) notify(id string, fence int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.inbox(id) <- fence:
	default: // nobody of ours, or it was told already
	}
}

func (e *subscriber) deregister(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiters, id)
}

func (e *subscriber) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.pubsub == nil {
		return nil
	}
	p := e.pubsub
	e.pubsub = nil
	return p.Close()
}
