package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

// env returns an environment with the two settings that have no default.
func env(more map[string]string) func(string) string {
	return func(name string) string {
		if value, ok := more[name]; ok {
			return value
		}
		return map[string]string{"DATABASE_URL": "postgres://u@h/d", "REDIS_URL": "redis://h:6379"}[name]
	}
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	for _, program := range []config.Program{config.API, config.Worker, config.CLI} {
		c, err := config.Load(program, nil, env(nil), io.Discard)
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		if c.HTTPAddr != "127.0.0.1:8080" || c.Partitions != 16 || c.Durability != "fsync" || c.Strict ||
			c.StreamMaxLag != 1_000_000 ||
			c.Worker.BatchSize != 500 || c.Worker.LockTTL != 10*time.Second || c.Worker.Partitions != 16 {
			t.Errorf("%s: got %+v", program, c)
		}
	}
}

func TestFlagBeatsEnvironment(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Worker, []string{"--worker-batch-size", "20", "--log-format=json"},
		env(map[string]string{"WORKER_BATCH_SIZE": "30", "WORKER_CONCURRENCY": "4"}), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.Worker.BatchSize != 20 || c.Worker.Concurrency != 4 || c.LogFormat != "json" {
		t.Errorf("got batch size %d, concurrency %d, log format %s; want 20, 4, json",
			c.Worker.BatchSize, c.Worker.Concurrency, c.LogFormat)
	}
}

func TestEverythingWrongIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.API, []string{"--partitions", "many", "leftover"}, env(map[string]string{
		"DATABASE_URL": "mysql://admin:hunter2@h/d", "REDIS_URL": "http://:hunter2@h", "HTTP_ADDR": "8080",
		"AUTH_MODE": "none", "BATCH_DEADLINE": "20s", "DURABILITY": "hope", "LOG_LEVEL": "loud",
		"SHUTDOWN_TIMEOUT": "-1s", "STREAM_MAX_LAG": "0", "AUTH_DEV_FORCE": "perhaps", "DURABILITY_STRICT": "very",
		"SALE_RETENTION": "23h", "ORDER_RETENTION": "719h", "AUDIT_LOG_RETENTION": "1h",
		"TRUSTED_PROXIES": "10.0.0.0/8,0.0.0.0/0", "RATE_LIMIT_CLIENT": "many", "RATE_LIMIT_BUYER": "1",
		"RATE_LIMIT_SALE": "1/1ms", "MAX_CONNECTIONS": "0", "MAX_CONNECTIONS_PER_CLIENT": "-1", "ALLOWED_HOSTS": "*",
		"ENTRY_TICKET_KEYS": "k1:hunter2", "ENTRY_TICKET_LEAD": "13h", "ENTRY_HOOK_URL": "ftp://u:hunter2@shop",
		"ENTRY_HOOK_TIMEOUT": "5s", "ENTRY_HOOK_FAIL": "ajar",
	}), io.Discard)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{
		"DATABASE_URL", "REDIS_URL", "HTTP_ADDR", "AUTH_MODE", "BATCH_DEADLINE", "DURABILITY", "LOG_LEVEL",
		"SHUTDOWN_TIMEOUT", "AUTH_DEV_FORCE", "DURABILITY_STRICT", "SALE_RETENTION", "PARTITIONS", "STREAM_MAX_LAG",
		"ORDER_RETENTION", "AUDIT_LOG_RETENTION",
		"TRUSTED_PROXIES", "RATE_LIMIT_CLIENT", "RATE_LIMIT_BUYER", "RATE_LIMIT_SALE", "MAX_CONNECTIONS:",
		"MAX_CONNECTIONS_PER_CLIENT", "ALLOWED_HOSTS", "leftover", "ENTRY_TICKET_KEYS", "ENTRY_TICKET_LEAD",
		"ENTRY_HOOK_URL", "ENTRY_HOOK_TIMEOUT", "ENTRY_HOOK_FAIL",
	} {
		if strings.Count(err.Error(), name) == 0 {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error contains a secret:\n%v", err)
	}
}

func TestMissingSettings(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.CLI, nil, func(string) string { return "" }, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "DATABASE_URL is missing") ||
		!strings.Contains(err.Error(), "REDIS_URL is missing") {
		t.Errorf("got %v, want both named as missing", err)
	}
}

func TestDevAuthStaysOnLoopback(t *testing.T) {
	t.Parallel()
	for addr, fine := range map[string]bool{
		"127.0.0.1:80": true, "localhost:80": true, "[::1]:80": true, "0.0.0.0:80": false, ":80": false, "10.0.0.1:80": false,
		"example.com:80": false,
	} {
		_, err := config.Load(config.API, []string{"--http-addr", addr}, env(nil), io.Discard)
		if fine != (err == nil) {
			t.Errorf("%s: got %v, want accepted %t", addr, err, fine)
		}
		forced := []string{"--http-addr", addr, "--auth-dev-force", "true"}
		if _, err := config.Load(config.API, forced, env(nil), io.Discard); err != nil {
			t.Errorf("%s, forced: %v", addr, err)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if _, err := config.Load(config.API, []string{"--help"}, env(nil), &out); !errors.Is(err, config.ErrHelp) {
		t.Fatalf("got %v, want ErrHelp", err)
	}
	if !strings.Contains(out.String(), "--database-url") || !strings.Contains(out.String(), "default 127.0.0.1:8080") {
		t.Errorf("the help is not complete:\n%s", out.String())
	}
}

func TestRedisForms(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct {
		addrs   string
		master  string
		cluster bool
	}{
		"redis://h:1/3":                              {addrs: "h:1"},
		"rediss://u:p@h:1":                           {addrs: "h:1"},
		"unix:///run/redis.sock?db=2":                {addrs: "/run/redis.sock"},
		"redis+sentinel://a:1,b:2,c:3/main":          {addrs: "a:1 b:2 c:3", master: "main"},
		"rediss+cluster://u:p@a:1,b:2":               {addrs: "a:1 b:2", cluster: true},
		"redis+sentinel://:secret@a:1,b:2/main?db=4": {addrs: "a:1 b:2", master: "main"},
	} {
		o, err := config.RedisOptions(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		got := strings.Join(o.Addrs, " ")
		if got != want.addrs || o.MasterName != want.master || o.IsClusterMode != want.cluster {
			t.Errorf("%s: got addresses %q, master %q, cluster %t", url, got, o.MasterName, o.IsClusterMode)
		}
		if o.MaxRetries != -1 {
			t.Errorf("%s: the client would retry", url)
		}
	}
	for _, url := range []string{
		"", "h:1", "http://h", "redis+sentinel://a:1", "redis+cluster://", "redis+x://a:1", "unix+cluster://a",
		"redis://:pa ss@h",
	} {
		if _, err := config.RedisOptions(url); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	load := func(text string) ([]string, error) {
		c, err := config.Load(config.API, nil, env(map[string]string{"CORS_ORIGINS": text}), io.Discard)
		return c.CORSOrigins, err
	}
	if got, err := load(""); err != nil || len(got) != 0 {
		t.Errorf("without the setting: got %q, %v", got, err)
	}
	got, err := load("https://shop.example.com, http://localhost:3000")
	if err != nil || strings.Join(got, " ") != "https://shop.example.com http://localhost:3000" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, wrong := range []string{
		"*", "https://*.example.com", "shop.example.com", "https://shop.example.com/", "https://Shop.example.com",
		"ftp://shop.example.com", "https://u@shop.example.com", "https://shop.example.com?x", "null", ",",
	} {
		if _, err := load(wrong); err == nil || !strings.Contains(err.Error(), "CORS_ORIGINS") {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}

func TestHTTPLimits(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.API, nil, env(map[string]string{
		"TRUSTED_PROXIES": "10.0.0.7, 192.168.0.0/16 2001:db8::/32", "RATE_LIMIT_BUYER": "5/1m",
		"MAX_CONNECTIONS_PER_CLIENT": "7", "ALLOWED_HOSTS": "Shop.Example",
	}), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.HTTP.TrustedProxies), "[10.0.0.7/32 192.168.0.0/16 2001:db8::/32]"; got != want {
		t.Errorf("proxies: got %s, want %s", got, want)
	}
	if c.HTTP.Client.Requests != 0 || c.HTTP.Buyer.String() != "5/1m0s" || c.HTTP.ClientConnections != 7 ||
		c.HTTP.AllowedHosts[0] != "shop.example" {
		t.Errorf("got %+v", c.HTTP)
	}
}

func TestEntryTickets(t *testing.T) {
	t.Parallel()
	load := func(more map[string]string) config.EntryTickets {
		c, err := config.Load(config.API, nil, env(more), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return c.Entry
	}
	if got := load(nil); len(got.Keys) != 0 || got.Lead != time.Hour || got.Hook.URL != "" || got.Hook.FailOpen ||
		got.Hook.Timeout != 2*time.Second {
		t.Errorf("without settings: got %+v", got)
	}
	got := load(map[string]string{
		"ENTRY_TICKET_KEYS": "k2:" + strings.Repeat("B", 43) + "=,k1:" + strings.Repeat("A", 43) + "=",
		"ENTRY_TICKET_LEAD": "12h", "ENTRY_HOOK_URL": "https://sluice:secret@shop.example.com/entry",
		"ENTRY_HOOK_TIMEOUT": "4s", "ENTRY_HOOK_FAIL": "open",
	})
	if len(got.Keys) != 2 || got.Keys[0].ID != "k2" || len(got.Keys[1].Secret) != 32 || got.Lead != 12*time.Hour ||
		got.Hook.URL != "https://sluice:secret@shop.example.com/entry" || !got.Hook.FailOpen ||
		got.Hook.Timeout != 4*time.Second {
		t.Errorf("got %+v", got)
	}
}

func TestRedisCAFile(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{empty: "no certificate in PEM", empty + "x": "no such file"} {
		_, err := config.Load(config.API, nil, env(map[string]string{
			"REDIS_CA_FILE": path, "REDIS_URL": "rediss://h:1",
		}), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "REDIS_CA_FILE: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to say %q", err, says)
		}
	}
}
