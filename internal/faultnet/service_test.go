package faultnet

import (
	"strings"
	"testing"
)

func TestURLsLeadToTheServerAndThroughTheProxy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		url     string
		target  endpoint
		proxy   endpoint
		through string
	}{
		{
			"unix:///run/r/redis.sock?db=2",
			endpoint{"unix", "/run/r/redis.sock"},
			endpoint{"unix", "/p/redis.sock"},
			"unix:///p/redis.sock?db=2",
		},
		{
			"redis://me:secret@h:6380/3",
			endpoint{"tcp", "h:6380"},
			endpoint{"tcp", "127.0.0.1:7"},
			"redis://me:secret@127.0.0.1:7/3",
		},
		{"redis://h", endpoint{"tcp", "h:6379"}, endpoint{"tcp", "127.0.0.1:7"}, "redis://127.0.0.1:7"},
		{
			"postgres://me@/shop?host=/run/pg&port=5544",
			endpoint{"unix", "/run/pg/.s.PGSQL.5544"},
			endpoint{"unix", "/p/.s.PGSQL.5544"},
			"postgres://me@/shop?host=%2Fp&port=5544&sslmode=disable",
		},
		{
			"postgres://me@/shop?host=/run/pg",
			endpoint{"unix", "/run/pg/.s.PGSQL.5432"},
			endpoint{"unix", "/p/.s.PGSQL.5432"},
			"postgres://me@/shop?host=%2Fp&sslmode=disable",
		},
		{
			"postgresql://me:secret@h/shop?sslmode=prefer",
			endpoint{"tcp", "h:5432"},
			endpoint{"tcp", "127.0.0.1:7"},
			"postgresql://me:secret@127.0.0.1:7/shop?sslmode=disable",
		},
	}
	for _, test := range tests {
		s, err := parseService(test.url)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		if s.target != test.target {
			t.Errorf("%s: target %v, want %v", test.url, s.target, test.target)
		}
		if got := s.through(test.proxy); got != test.through {
			t.Errorf("%s: through the proxy %s, want %s", test.url, got, test.through)
		}
	}
}

func TestURLsThatNoProxyCanServe(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "https://h", "rediss://me:secret@h", "redis+sentinel://h/m", "redis://me:secret@h:port",
	} {
		_, err := parseService(text)
		if err == nil {
			t.Errorf("%q: no error", text)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error contains the password: %v", text, err)
		}
	}
}
