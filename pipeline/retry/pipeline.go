package retry

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Exec runs a pipeline of which each command's own error is looked at. Its error is one that is no command's: Redis
// refused the connection, or could not be reached, and the commands have neither a reply nor an error. The client
// leaves their values nil, so they must not be read then.
func Exec(ctx context.Context, pipe redis.Pipeliner) ([]redis.Cmder, error) {
	commands, err := pipe.Exec(ctx)
	if err == nil {
		return commands, nil
	}
	for _, c := range commands {
		if c.Err() != nil {
			return commands, nil //nolint:nilerr // it is that command's error
		}
	}
	return commands, err
}
