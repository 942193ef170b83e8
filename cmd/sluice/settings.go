package main

import (
	"io"
	"os"
	"strings"
	"time"

	"sluice/internal/config"
)

// startTimeout is how long a command waits for a server that does not answer, unless START_TIMEOUT says otherwise: a
// person is waiting too.
const startTimeout = 3 * time.Second

// settings are flags for the settings that an operator's command needs. They only note their text: package config reads
// them, together with the environment and the defaults, as it does for every program.
type settings struct {
	DatabaseURL  string `name:"database-url" placeholder:"URL" help:"Postgres: postgres://user:password@host:port/database (DATABASE_URL)."`
	RedisURL     string `name:"redis-url" placeholder:"URL" help:"Redis: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// (REDIS_URL)."`
	DatabaseFile string `name:"database-url-file" placeholder:"FILE" help:"File with the URL of Postgres (DATABASE_URL_FILE)."`
	RedisFile    string `name:"redis-url-file" placeholder:"FILE" help:"File with the URL of Redis (REDIS_URL_FILE)."`
	Partitions   string `name:"partitions" placeholder:"N" help:"Partitions of Redis, fixed at install (PARTITIONS); default: those of the installation."`
	StartTimeout string `name:"start-timeout" placeholder:"TIME" help:"How long to wait for a server that does not answer (START_TIMEOUT); default 3s."`
	LogLevel     string `name:"log-level" placeholder:"LEVEL" help:"debug, info, warn or error (LOG_LEVEL); default warn."`
}

// load reads every setting; the error names all that are wrong.
func (s *settings) load(defaults map[string]string) (config.Config, error) {
	var args []string
	for name, text := range map[string]string{
		"database-url": s.DatabaseURL, "redis-url": s.RedisURL, "database-url-file": s.DatabaseFile,
		"redis-url-file": s.RedisFile, "partitions": s.Partitions, "start-timeout": s.StartTimeout,
		"log-level": s.LogLevel,
	} {
		if text != "" {
			args = append(args, "--"+name+"="+text)
		}
	}
	getenv := func(name string) string {
		if text := os.Getenv(name); text != "" {
			return text
		}
		if os.Getenv(name+"_FILE") != "" {
			return ""
		}
		return defaults[name]
	}
	cfg, err := config.Load(config.CLI, args, getenv, io.Discard)
	if err != nil {
		return cfg, usagef("these settings are wrong: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return cfg, nil
}

// commandDefaults are where a command differs from a server.
func commandDefaults() map[string]string {
	return map[string]string{"START_TIMEOUT": startTimeout.String(), "LOG_LEVEL": "warn"}
}

// partitionsGiven reports whether the number of partitions was set, or the default applies.
func (s *settings) partitionsGiven() bool { return s.Partitions != "" || os.Getenv("PARTITIONS") != "" }

// refuseServers returns an error where servers are named for a command that starts its own.
func (s *settings) refuseServers(command string) error {
	for name, text := range map[string]string{
		"redis-url": s.RedisURL, "database-url": s.DatabaseURL,
		"redis-url-file": s.RedisFile, "database-url-file": s.DatabaseFile,
	} {
		if text != "" {
			return usagef("%s starts a Redis and a Postgres of its own and takes no --%s; "+
				"to use yours, run the programs themselves: api and worker", command, name)
		}
	}
	return nil
}

// environ adds the settings that were given as flags to an environment.
func (s *settings) environ(base []string) []string {
	for name, text := range map[string]string{
		"PARTITIONS": s.Partitions, "START_TIMEOUT": s.StartTimeout,
	} {
		if text != "" {
			base = append(base, name+"="+text)
		}
	}
	return base
}
