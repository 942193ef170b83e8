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
	// subscribeTimeout bounds the first subscription. When it fails, the waiter polls.
	subscribeTimeout = time.Second
	// pingEvery is the interval of pings on a subscription. One that stays silent for twice as long is replaced; until
	// then waiters poll.
	pingEvery = 3 * time.Second
	// resubscribeBackoff is the time between two attempts to subscribe again.
	resubscribeBackoff = 100 * time.Millisecond
)

// subscriber receives the messages that wake waiters. All waiters of a client share one subscription, which is made
// when the first of them waits.
type subscriber struct {
	subscribing sync.Mutex // locked while the first subscription is made

	mu      sync.Mutex // protects the rest
	pubsub  *redis.PubSub
	closed  bool
	waiters map[string]chan int64 // by id, each with room for one message; nil until the waiter is notified or awaits it
}

// subscribe subscribes, unless that is done. When it fails, waiters poll; the Redis client goes on to subscribe by
// itself.
func (s *subscriber) subscribe(ctx context.Context, c *Client) {
	s.subscribing.Lock()
	defer s.subscribing.Unlock()
	s.mu.Lock()
	needed := s.pubsub == nil && !s.closed
	s.mu.Unlock()
	if !needed {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), subscribeTimeout)
	defer cancel()
	pubsub := c.rdb.Subscribe(ctx, c.channel)
	_, _ = pubsub.ReceiveTimeout(ctx, subscribeTimeout) // the confirmation: no message is missed from here on
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = pubsub.Close()
		return
	}
	s.pubsub = pubsub
	c.running.Go(func() { keepAlive(c.closing, pubsub) })
	c.running.Go(func() { s.receive(c.closing, pubsub) })
}

// receive notifies waiters until the subscription is closed. It reads messages itself: through PubSub.Channel each
// message would wake two more goroutines on its way from the last holder to the next.
func (s *subscriber) receive(ctx context.Context, pubsub *redis.PubSub) {
	for {
		received, err := pubsub.Receive(withDeadlineOnly(ctx, 2*pingEvery))
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
		if m, ok := received.(*redis.Message); ok {
			id, text, _ := strings.Cut(m.Payload, " ")
			fence, _ := strconv.ParseInt(text, 10, 64) // 0: the waiter is to try again
			s.notify(id, fence)
		}
	}
}

// keepAlive pings until ctx ends. A failure shows in receive.
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

// register makes an id known, if there is a subscription: no notification for it is lost from now on.
func (s *subscriber) register(id string) (subscribed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pubsub == nil && !s.closed {
		return false
	}
	if s.waiters == nil {
		s.waiters = map[string]chan int64{}
	}
	s.waiters[id] = nil
	return true
}

// notification returns the channel that delivers the fence of a lock that was transferred to the id, or 0 when the
// waiter is to try again. It is nil, which never delivers, when there is no subscription.
func (s *subscriber) notification(id string) <-chan int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inbox(id)
}

// inbox needs mu.
func (s *subscriber) inbox(id string) chan int64 {
	inbox, known := s.waiters[id]
	if known && inbox == nil {
		inbox = make(chan int64, 1)
		s.waiters[id] = inbox
	}
	return inbox
}

func (s *subscriber) notify(id string, fence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.inbox(id) <- fence:
	default: // not a waiter of ours, or already notified
	}
}

func (s *subscriber) deregister(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiters, id)
}

func (s *subscriber) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.pubsub == nil {
		return nil
	}
	p := s.pubsub
	s.pubsub = nil
	return p.Close()
}
