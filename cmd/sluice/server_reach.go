package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/cenkalti/backoff/v5"

	"sluice/internal/config"
)

// server is how a server is named to people, without its password.
type server struct{ name, address, setting, authority string }

func redisServer(cfg config.Config) server {
	return server{"Redis", withoutSecrets(cfg.RedisURL), "REDIS_URL", config.RedisAuthority}
}

func postgresServer(cfg config.Config) server {
	return server{"Postgres", withoutSecrets(cfg.DatabaseURL), "DATABASE_URL", config.PostgresAuthority}
}

// withoutSecrets keeps scheme, host and path of an address. Users, passwords and parameters (which may contain either)
// are left out.
func withoutSecrets(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address set"
	}
	host := u.Host
	if directory := u.Query().Get("host"); host == "" && directory != "" {
		host = directory // of a unix socket
	}
	return u.Scheme + "://" + host + u.Path
}

// reach tries until a server answers, at most START_TIMEOUT.
func reach(ctx context.Context, cfg config.Config, to server, try func(context.Context) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err := try(ctx)
		if config.Distrust(err, "", "") != "" {
			return struct{}{}, backoff.Permanent(err) // waiting helps no certificate
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(cfg.StartTimeout))
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && errors.Is(cause, context.Canceled) {
		return cause
	}
	if why := config.Distrust(err, to.name+" at "+to.address, to.authority); why != "" {
		return unavailable(err, why)
	}
	return unavailable(err, fmt.Sprintf("%s at %s does not answer; start it, or correct %s", to.name, to.address,
		to.setting))
}
