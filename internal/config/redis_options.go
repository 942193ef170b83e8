package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of every connection to Redis. Each call has its own, shorter deadline; these are for a server that hangs.
const (
	redisDialTimeout  = 2 * time.Second
	redisWriteTimeout = 2 * time.Second
	redisReadTimeout  = 3 * time.Second
	redisPoolTimeout  = time.Second // waiting for a free connection
	redisPoolSize     = 32          // one process' commands at once; batching leaves most idle

	// topologyMaxAge is how old a client's picture of a cluster may be. A server that answers MOVED corrects it at once;
	// one that died and stays away answers nothing, and the client would go on to call it for a minute, by default.
	topologyMaxAge = time.Second
)

// redisKeepalive bounds how long a connection to a machine that vanished is kept while nobody uses it: 30 s. Redis'
// side of it is its tcp-keepalive.
var redisKeepalive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// redisDialer dials with our keepalives. The client leaves TLS to a dialer that it is given.
func redisDialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: redisDialTimeout, KeepAliveConfig: redisKeepalive}
	if config == nil {
		return dialer.DialContext
	}
	return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext
}

var errRedisForm = errors.New("not a URL of the form redis://host:port/db, rediss://…, unix:///path?db=0, " +
	"redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port")

// RedisOptions parses REDIS_URL. Its error never repeats the text, which may contain a password.
func RedisOptions(text string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(text), "://")
	if !ok {
		return nil, errRedisForm
	}
	base, form, _ := strings.Cut(scheme, "+")
	if form == "" {
		return singleOptions(text)
	}
	if base != "redis" && base != "rediss" || form != "sentinel" && form != "cluster" {
		return nil, errRedisForm
	}
	return manyOptions(base, form, rest)
}

// RedisOptions are the options of a client of REDIS_URL that believes the CA of REDIS_CA_FILE.
func (c *Config) RedisOptions() (*redis.UniversalOptions, error) {
	opts, err := RedisOptions(c.RedisURL)
	if err == nil && opts.TLSConfig != nil {
		opts.TLSConfig.RootCAs = c.RedisCA // the dialer has the same config
	}
	return opts, err
}

// NewRedisClient makes a client of what RedisOptions returns; it does not connect yet.
func NewRedisClient(opts *redis.UniversalOptions) redis.UniversalClient {
	if !opts.IsClusterMode {
		return redis.NewUniversalClient(opts)
	}
	cluster := opts.Cluster()
	cluster.ClusterStateReloadInterval = topologyMaxAge
	return redis.NewClusterClient(cluster)
}

// certificates reads a file of certificates in PEM, which are no secret.
func certificates(into **x509.CertPool) func(string) error {
	return func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return fmt.Errorf("%q has no certificate in PEM (-----BEGIN CERTIFICATE-----)", path)
		}
		*into = pool
		return nil
	}
}

func singleOptions(text string) (*redis.UniversalOptions, error) {
	one, err := redis.ParseURL(strings.TrimSpace(text))
	if err != nil {
		return nil, errRedisForm
	}
	return limited(one, one.Addr), nil
}

// manyOptions parses a list of hosts; the rest of the URL is that of a single server.
func manyOptions(base, form, rest string) (*redis.UniversalOptions, error) {
	authority, path, _ := strings.Cut(rest, "/")
	userinfo, hosts := "", authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		userinfo, hosts = authority[:at+1], authority[at+1:]
	}
	addrs := strings.Split(hosts, ",")
	path, query, _ := strings.Cut(path, "?")
	first, err := redis.ParseURL(base + "://" + userinfo + addrs[0] + "/?" + query)
	if err != nil || addrs[0] == "" {
		return nil, errRedisForm
	}
	opts := limited(first, addrs...)
	if form == "cluster" {
		opts.IsClusterMode = true
		return opts, nil
	}
	if opts.MasterName, err = url.PathUnescape(path); err != nil || path == "" {
		return nil, errRedisForm
	}
	return opts, nil
}

// limited returns the options of the servers at addrs, with a URL's credentials and the limits of every client. We
// retry ourselves: a script is repeated with the same order ids, and a blocking read never, because its lost reply has
// already moved entries to us.
func limited(u *redis.Options, addrs ...string) *redis.UniversalOptions {
	if u.TLSConfig != nil {
		// Each server shows that it is the one at its own address: of several, the URL's first is only one.
		u.TLSConfig.ServerName = ""
	}
	return &redis.UniversalOptions{
		Addrs: addrs, DB: u.DB, Username: u.Username, Password: u.Password, TLSConfig: u.TLSConfig,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: redisDialTimeout, ReadTimeout: redisReadTimeout,
		WriteTimeout: redisWriteTimeout, PoolSize: redisPoolSize, PoolTimeout: redisPoolTimeout,
		ContextTimeoutEnabled: true, Dialer: redisDialer(u.TLSConfig),
	}
}
