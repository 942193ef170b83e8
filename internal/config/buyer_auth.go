package config

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"sluice/httpapi/auth"
)

// How buyers are identified.
const (
	AuthDev   = "dev"
	AuthProxy = "proxy"
	AuthJWT   = "jwt"
)

// unixAddress begins an address that is a Unix socket.
const unixAddress = "unix:"

// buyerSettings are those by which buyers are identified.
func buyerSettings(c *Config) []setting {
	return []setting{
		{
			name: "AUTH_MODE", fallback: AuthDev, parse: oneOf(&c.AuthMode, AuthDev, AuthProxy, AuthJWT),
			help: "how buyers are identified: jwt (a token of your issuer), proxy (a header of your proxy) or dev (header " +
				"X-User-Id, which anybody can send: for development only)",
		},
		{
			name: "AUTH_DEV_FORCE", fallback: "false", parse: boolean(&c.authDevForce),
			help: "allow AUTH_MODE=dev on an address that is not loopback",
		},
		{
			name: "AUTH_PROXY_FROM", parse: proxies(&c.Proxy),
			help: "with AUTH_MODE=proxy, where the proxy's connections come from: addresses and networks such as 10.0.0.7 or " +
				"10.0.0.0/24, separated by commas, and unix for those over a Unix socket (HTTP_ADDR=unix:/path)",
		},
		{
			name: "AUTH_PROXY_HEADER", fallback: auth.UserHeader, parse: text(&c.Proxy.Header),
			help: "with AUTH_MODE=proxy, the header in which the proxy names the buyer; it must remove the one of a client",
		},
		{
			name: "JWT_ISSUER", parse: text(&c.Tokens.Issuer),
			help: "with AUTH_MODE=jwt, whose tokens are taken: the claim iss",
		},
		{
			name: "JWT_AUDIENCE", parse: text(&c.Tokens.Audience),
			help: "with AUTH_MODE=jwt, whom tokens must be meant for: one of the claim aud",
		},
		{
			name: "JWT_JWKS_URL", parse: text(&c.Tokens.JWKS.URL),
			help: "where the issuer publishes its keys, such as https://issuer.example.com/.well-known/jwks.json",
		},
		{
			name: "JWT_JWKS_MAX_AGE", fallback: "24h", parse: longDuration(&c.Tokens.JWKS.MaxAge),
			help: "how long the issuer's keys are used while they can't be fetched again",
		},
		{
			name: "JWT_KEY", secret: true, parse: text(&c.Tokens.Key),
			help: "instead of JWT_JWKS_URL, the key itself: a public key in PEM, a JWK or a JWK set",
		},
		{
			name: "JWT_ALGORITHMS", fallback: strings.Join(auth.DefaultAlgorithms, ","), parse: words(&c.Tokens.Algorithms),
			help: "what tokens may be signed with, separated by commas; HS256 and its relatives need a secret in JWT_KEY",
		},
		{
			name: "JWT_CLAIM", fallback: "sub", parse: text(&c.Tokens.Claim),
			help: "the claim that is the buyer, a text of at most 128 bytes",
		},
		{
			name: "JWT_LEEWAY", fallback: "30s", parse: leeway(&c.Tokens.Leeway),
			help: "how far the clocks of the issuer and of an api may be apart, for exp, nbf and iat, at most 5m",
		},
	}
}

func (c *Config) validateAuth() error {
	switch c.AuthMode {
	case AuthJWT:
		return c.Tokens.Validate()
	case AuthProxy:
		_, err := auth.NewProxy(c.Proxy)
		return err
	case AuthDev:
		known := c.HTTPAddr != "" // else it can't be read, which is reported already
		if known && !loopback(c.HTTPAddr) && !c.authDevForce {
			return fmt.Errorf("AUTH_MODE=dev lets anybody be any buyer, and HTTP_ADDR %s is not loopback: set AUTH_MODE=jwt, or "+
				"AUTH_MODE=proxy; AUTH_DEV_FORCE=true is for a closed network only", c.HTTPAddr)
		}
	}
	return nil
}

// loopback reports whether an address can only be reached from this machine.
func loopback(addr string) bool {
	if strings.HasPrefix(addr, unixAddress) {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// socketOrAddress takes unix:/path too.
func socketOrAddress(into *string) func(string) error {
	tcp := address(into)
	return func(s string) error {
		path, socket := strings.CutPrefix(s, unixAddress)
		if !socket {
			return tcp(s)
		}
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q names no socket by an absolute path, as in unix:/run/sluice/api.sock", s)
		}
		*into = s
		return nil
	}
}

// proxies parses addresses, networks and the word unix.
func proxies(into *auth.ProxyOptions) func(string) error {
	return func(text string) error {
		for _, word := range fields(text) {
			if word == "unix" {
				into.Socket = true
				continue
			}
			network, ok := networkOf(word)
			if !ok {
				return fmt.Errorf("%q is no address and no network such as 10.0.0.0/24, and not unix", word)
			}
			into.Networks = append(into.Networks, network)
		}
		return nil
	}
}

// fields splits a list that is separated by commas or spaces.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func words(into *[]string) func(string) error {
	return func(text string) error { *into = fields(text); return nil }
}

// longDuration leaves the bounds to the options that it is for.
func longDuration(into *time.Duration) func(string) error {
	return checked(into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d > 0
	}, "is not a time like 15m or 24h")
}

func leeway(into *time.Duration) func(string) error {
	return checked(into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= 0
	}, "is not a time like 0s or 30s")
}
