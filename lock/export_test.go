package lock

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// SendTogether sends commands as calls that share a round trip.
func SendTogether(c *Client, commands []*redis.Cmd) {
	batch := make([]*pendingCall, len(commands))
	for i, cmd := range commands {
		batch[i] = &pendingCall{ctx: context.Background(), cmd: cmd, turn: make(chan turn, 1)}
	}
	c.batcher.send(batch)
}
