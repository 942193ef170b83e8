package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/modules/redis"
	"go.uber.org/goleak"
)

// containerRedis runs Redis as durable as localservers does.
func containerRedis(ctx context.Context) (runningServer, error) {
	if err := dockerHealth(ctx); err != nil {
		return runningServer{}, err
	}
	container, err := redis.Run(ctx, envOr("TEST_REDIS_IMAGE", "redis:7.4"), testcontainers.WithCmd(
		"redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"))
	if err != nil {
		return runningServer{}, failed(container, err)
	}
	url, err := container.ConnectionString(ctx)
	if err != nil {
		return runningServer{}, failed(container, err)
	}
	return runningServer{url: url, close: func() error { return testcontainers.TerminateContainer(container) }}, nil
}

func containerPostgres(ctx context.Context) (runningServer, error) {
	if err := dockerHealth(ctx); err != nil {
		return runningServer{}, err
	}
	container, err := postgres.Run(ctx, envOr("TEST_POSTGRES_IMAGE", "postgres:17"), postgres.BasicWaitStrategies(),
		postgres.WithDatabase("sluice"), postgres.WithUsername("sluice"), postgres.WithPassword("sluice"),
		testcontainers.WithCmdArgs("-c", sharedConnections))
	if err != nil {
		return runningServer{}, failed(container, err)
	}
	url, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return runningServer{}, failed(container, err)
	}
	return runningServer{url: url, close: func() error { return testcontainers.TerminateContainer(container) }}, nil
}

// failed ends a container that can't be used.
func failed(container testcontainers.Container, err error) error {
	return errors.Join(err, testcontainers.TerminateContainer(container))
}

// dockerHealth returns errAbsent when no container engine answers. The library panics where it finds no socket at all.
func dockerHealth(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: no container engine: %v", errAbsent, r)
		}
	}()
	provider, err := testcontainers.ProviderDocker.GetProvider()
	if err != nil {
		return fmt.Errorf("%w: no container engine: %w", errAbsent, err)
	}
	if err := provider.Health(ctx); err != nil {
		return fmt.Errorf("%w: no container engine: %w", errAbsent, err)
	}
	return nil
}

// containerGoroutines are those that testcontainers-go keeps until the process ends: its connection to the reaper.
func containerGoroutines() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1")}
}

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
