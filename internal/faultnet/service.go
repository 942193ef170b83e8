package faultnet

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// endpoint is the address of a listener.
type endpoint struct{ network, address string }

// service is the server that a URL names, and how to put the proxy in its place.
type service struct {
	target  endpoint
	socket  string                      // file name of the proxy's socket; empty for TCP
	through func(proxy endpoint) string // the URL that leads through the proxy
	framing framings
}

// parseService parses a URL of the form that REDIS_URL or DATABASE_URL takes.
func parseService(text string) (service, error) {
	u, err := url.Parse(text)
	if err != nil {
		return service{}, fmt.Errorf("faultnet: not a URL") // the text may contain a password
	}
	switch u.Scheme {
	case "unix":
		return redisSocketService(u), nil
	case "redis":
		return redisTCPService(u), nil
	case "postgres", "postgresql":
		return postgresService(u), nil
	case "http":
		return httpService(u), nil
	default:
		return service{}, fmt.Errorf("faultnet: scheme %q: use unix, redis, postgres or http", u.Scheme)
	}
}

func redisSocketService(u *url.URL) service {
	return service{
		target: endpoint{"unix", u.Path}, socket: "redis.sock", framing: respFramings,
		through: func(proxy endpoint) string {
			changed := *u
			changed.Path = proxy.address
			return changed.String()
		},
	}
}

func redisTCPService(u *url.URL) service { return tcpService(u, "6379", respFramings) }

func httpService(u *url.URL) service { return tcpService(u, "80", chunkFramings) }

func tcpService(u *url.URL, port string, framing framings) service {
	return service{
		target: endpoint{"tcp", hostPort(u, port)}, framing: framing,
		through: func(proxy endpoint) string {
			changed := *u
			changed.Host = proxy.address
			return changed.String()
		},
	}
}

// postgresService accepts both forms: a host in the authority, or a directory with a socket in the query.
func postgresService(u *url.URL) service {
	s := service{target: endpoint{"tcp", hostPort(u, "5432")}, framing: pgFramings}
	query := u.Query()
	if dir := query.Get("host"); strings.HasPrefix(dir, "/") {
		port := query.Get("port")
		if port == "" {
			port = "5432"
		}
		s.socket = ".s.PGSQL." + port // clients derive the name from the port
		s.target = endpoint{"unix", filepath.Join(dir, s.socket)}
	}
	s.through = func(proxy endpoint) string {
		changed := *u
		query.Set("sslmode", "disable") // in TLS replies can't be told apart
		if proxy.network == "unix" {
			query.Set("host", filepath.Dir(proxy.address))
		} else {
			changed.Host = proxy.address
		}
		changed.RawQuery = query.Encode()
		return changed.String()
	}
	return s
}

func hostPort(u *url.URL, otherwise string) string {
	port := u.Port()
	if port == "" {
		port = otherwise
	}
	return net.JoinHostPort(u.Hostname(), port)
}
