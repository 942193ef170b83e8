package admission

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// With DURABILITY_STRICT a receipt states what DURABILITY asks for, or there is none. What the script has taken can't
// be given back, because its event may be persisted at any time, so this is found out before: a server that confirmed
// nothing lately is asked to confirm a write of our own first.

// confirmedFor is how long a confirmation speaks for the next call on its connection. A replica that goes away while
// nobody orders is then noticed before a unit is taken; a flood pays for one more write per connection and second.
const confirmedFor = time.Second

// ErrDurabilityUnavailable is in the chain of the error of a request that was refused because DURABILITY can't be
// confirmed. The request took nothing.
var ErrDurabilityUnavailable = errors.New("DURABILITY can't be confirmed")

var errRefused = pipeline.Wrap(pipeline.KindUnavailable, ErrDurabilityUnavailable,
	"orders can't be stored as safely as this shop promises; this request has ordered nothing")

// errUnconfirmed is the outcome of an attempt whose accepts nobody may be told of yet, or which was not made because
// they could not be confirmed. It is transient: the attempt is repeated.
var errUnconfirmed = errors.New("the accepts of an attempt are not confirmed")

// errTaken answers a request whose accept was not confirmed in time. Its outcome is as unknown as that of a lost reply:
// the order is there, unless Redis loses it.
var errTaken = pipeline.Errorf(pipeline.KindUnavailable,
	"the order was not confirmed in time, and may stand; repeat the request with the same Idempotency-Key, or look at "+
		"your order")

// standing is what is known of one server.
type standing struct {
	failed atomic.Int64 // when the last confirmation failed, by uptime; 0: it came
}

// suffices reports whether buyers may be told of accepts at a level.
func (c *confirmer) suffices(level pipeline.Durability) bool { return !c.strict || level == c.want }

func (c *confirmer) standing(node *redis.Client) *standing {
	address := node.Options().Addr
	if at, ok := c.servers.Load(address); ok {
		return at.(*standing)
	}
	at, _ := c.servers.LoadOrStore(address, &standing{})
	return at.(*standing)
}

// admits refuses at once while a server confirms nothing. Once per confirmSuspension it lets one call pass, which then
// has to ensure it.
func (c *confirmer) admits(node *redis.Client) error {
	at := c.standing(node)
	failed, now := at.failed.Load(), uptime()
	switch {
	case failed == 0:
		return nil
	case now-failed < int64(confirmSuspension), !at.failed.CompareAndSwap(failed, now):
		return errRefused
	}
	return nil
}

// ensure returns nil when what is accepted on a connection next can be expected to be confirmed: a moment ago something
// was, and nothing has failed since. Where that is not so, a write of our own is. Errors: errRefused, and those of the
// connection.
func (c *confirmer) ensure(ctx context.Context, on redis.Scripter, marker string) error {
	conn, ok := on.(*connection)
	if !ok || !c.strict {
		return nil
	}
	if c.standing(conn.node).failed.Load() == 0 && time.Since(conn.confirmed) < confirmedFor {
		return nil
	}
	level, err := c.wait(ctx, conn, marker, true)
	c.judge(conn, level, err)
	if level != c.want && err != nil && retry.IsTransient(err) {
		return err
	}
	c.reportChange(level)
	if level != c.want {
		return errRefused
	}
	return nil
}

// judge notes whether a confirmation came. An error of the connection says nothing of the server's disk and replicas.
func (c *confirmer) judge(conn *connection, level pipeline.Durability, err error) {
	at := c.standing(conn.node)
	switch {
	case level == c.want:
		conn.confirmed = time.Now()
		at.failed.Store(0)
	case err == nil || !retry.IsTransient(err):
		conn.examined = time.Time{} // it may be the settings, and somebody may correct them
		at.failed.Store(uptime())
	}
}

// admits refuses a call at once where it would be in vain. One that may have been made before is only put off: what it
// has taken stands.
func (g *gate) admits(ctx context.Context, again bool) error {
	c := g.controller
	if !c.confirmer.strict || c.confirmer.want == pipeline.DurabilityMemory {
		return nil
	}
	node, err := c.connections.nodeOf(ctx, g.marker)
	if err != nil {
		return err
	}
	return putOff(c.confirmer.admits(node), again)
}

// putOff makes of a refusal of a call that may have been made before an error that repeats it.
func putOff(err error, again bool) error {
	if again && errors.Is(err, ErrDurabilityUnavailable) {
		return errUnconfirmed
	}
	return err
}
