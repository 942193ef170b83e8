package config

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluice/httpapi/limits"
)

// What one client and one buyer may do unless a setting says otherwise. With AUTH_MODE=dev, where all buyers come from
// this machine, nothing is limited.
var (
	// defaultClientRate lets some hundred buyers behind one address of a mobile network order and look, and costs a
	// hundredth of what an api can do.
	defaultClientRate = limits.Rate{Requests: 200, Per: time.Second}
	// defaultBuyerRate is far more than a page that asks for its order's status needs.
	defaultBuyerRate = limits.Rate{Requests: 20, Per: time.Second}
	// defaultClientConnections is above the six that a browser opens, for some forty of them behind one address.
	defaultClientConnections = 256
)

// maxList bounds the members of a list: each request is compared with all of them.
const maxList = 32

// HTTPLimits are the limits of the public side.
type HTTPLimits struct {
	Client, Buyer, Sale limits.Rate
	Connections         int // in all; 0: as many as descriptors and memory allow
	ClientConnections   int // of one client; 0: no limit
	TrustedProxies      []netip.Prefix
	AllowedHosts        []string // names by which a listener on loopback may be called, besides those of this machine
}

// optional are settings whose default depends on others; nil: not set.
type optional struct {
	client, buyer     *limits.Rate
	clientConnections *int
}

// limitSettings are those of what one client may use up.
func limitSettings(c *Config, o *optional) []setting {
	return []setting{
		{
			name: "TRUSTED_PROXIES", parse: networks(&c.HTTP.TrustedProxies),
			help: "addresses or networks of the proxies in front of the api, separated by commas, whose X-Forwarded-For is " +
				"believed; default: AUTH_PROXY_FROM; without either, a client's address is that of its connection",
		},
		{
			name: "RATE_LIMIT_CLIENT", parse: given(&o.client, rateLimit),
			help: "requests that one client address, an IPv6 /64 being one, may send to an api, as requests/time, or off; default: " +
				"200/1s, with AUTH_MODE=dev off",
		},
		{
			name: "RATE_LIMIT_BUYER", parse: given(&o.buyer, rateLimit),
			help: "requests that one buyer may send to an api, as requests/time, or off; default: 20/1s, with AUTH_MODE=dev off",
		},
		{
			name: "RATE_LIMIT_SALE", fallback: limits.Off, parse: rateLimit(&c.HTTP.Sale),
			help: "orders that an api takes for one sale, as requests/time, or off",
		},
		{
			name: "MAX_CONNECTIONS", parse: integer(&c.HTTP.Connections),
			help: "connections of buyers that an api has at once; default: as many as its descriptors and its memory allow",
		},
		{
			name: "MAX_CONNECTIONS_PER_CLIENT", parse: given(&o.clientConnections, orOff),
			help: "connections that one client address may have at once to an api, or off; default: 256, with AUTH_MODE=dev off",
		},
		{
			name: "ALLOWED_HOSTS", parse: hosts(&c.HTTP.AllowedHosts),
			help: "names by which an api on a loopback address may be called besides localhost, separated by commas",
		},
	}
}

func (c *Config) setHTTPLimits(o optional) {
	l := &c.HTTP
	if len(l.TrustedProxies) == 0 && c.AuthMode == AuthProxy {
		l.TrustedProxies = c.Proxy.Networks
	}
	if c.AuthMode != AuthDev {
		l.Client, l.Buyer, l.ClientConnections = defaultClientRate, defaultBuyerRate, defaultClientConnections
	}
	if o.client != nil {
		l.Client = *o.client
	}
	if o.buyer != nil {
		l.Buyer = *o.buyer
	}
	if o.clientConnections != nil {
		l.ClientConnections = *o.clientConnections
	}
}

func rateLimit(into *limits.Rate) func(string) error {
	return func(text string) (err error) {
		*into, err = limits.ParseRate(text)
		return err
	}
}

// given parses a setting that has no fixed default.
func given[T any](into **T, parse func(*T) func(string) error) func(string) error {
	return func(text string) error {
		value := new(T)
		if err := parse(value)(text); err != nil {
			return err
		}
		*into = value
		return nil
	}
}

// orOff takes a number or off, which is 0.
func orOff(into *int) func(string) error {
	return func(text string) error {
		if text == limits.Off {
			*into = 0
			return nil
		}
		return integer(into)(text)
	}
}

// networks parses addresses and networks, separated by commas or spaces.
func networks(into *[]netip.Prefix) func(string) error {
	return func(text string) error {
		list, err := listOf(text)
		if err != nil {
			return err
		}
		for _, one := range list {
			network, ok := networkOf(one)
			if !ok {
				return fmt.Errorf("%q is not an address or a network, such as 10.0.0.7 or 10.0.0.0/24", one)
			}
			if network.Bits() == 0 {
				return fmt.Errorf("%q is everybody: anybody could claim any address; name the proxies", one)
			}
			*into = append(*into, network)
		}
		return nil
	}
}

// networkOf reads an address, or a network by its first address: another one may be a slip.
func networkOf(text string) (netip.Prefix, bool) {
	network, err := netip.ParsePrefix(text)
	if addr, notAddr := netip.ParseAddr(text); notAddr == nil {
		addr = addr.Unmap().WithZone("")
		network, err = addr.Prefix(addr.BitLen())
	}
	return network, err == nil && network == network.Masked() && !network.Addr().Is4In6()
}

func hosts(into *[]string) func(string) error {
	return func(text string) error {
		list, err := listOf(text)
		if err != nil {
			return err
		}
		for _, one := range list {
			if strings.ContainsAny(one, "*/:") {
				return fmt.Errorf("%q is not the name of a host: write it without scheme, port and *", one)
			}
			*into = append(*into, strings.ToLower(one))
		}
		return nil
	}
}

func listOf(text string) ([]string, error) {
	list := fields(text)
	if len(list) == 0 || len(list) > maxList {
		return nil, fmt.Errorf("it has %d members: use 1 to %d, with commas between", len(list), maxList)
	}
	return list, nil
}
