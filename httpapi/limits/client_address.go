package limits

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// subnetBits is the part of an IPv6 address that stands for one client: a /64 is the least that a customer is given,
// who then has all 2^64 addresses of it.
const subnetBits = 64

// forwardedFor is the header in which each proxy adds from where a request came to it.
const forwardedFor = "X-Forwarded-For"

// Addresses tells from where a request comes.
type Addresses struct{ proxies []netip.Prefix }

// NewAddresses returns Addresses that believe X-Forwarded-For where a request comes from one of some proxies, or over a
// Unix socket, which only programs on this machine can reach, and nobody else's.
func NewAddresses(proxies []netip.Prefix) *Addresses { return &Addresses{proxies} }

// Of returns the client's address: that of the connection, or, behind proxies, the last one in X-Forwarded-For that is
// none of theirs. What is before a text that is no address counts for nothing: then it is the proxy that wrote it. It
// is invalid over a Unix socket whose proxy does not say; to such a proxy, those on this machine are proxies, too.
func (a *Addresses) Of(r *http.Request) netip.Addr {
	client := AddressOf(r.RemoteAddr)
	onSocket := !client.IsValid()
	headers := r.Header[forwardedFor]
	for h := len(headers) - 1; h >= 0; h-- {
		for rest, more := headers[h], true; more; {
			if !a.IsProxy(client) && (!onSocket || !client.IsLoopback()) {
				return client
			}
			comma := strings.LastIndexByte(rest, ',')
			addr, ok := forwardedAddress(rest[comma+1:])
			if !ok {
				return client
			}
			client, more = addr, comma >= 0
			rest = rest[:max(comma, 0)]
		}
	}
	return client
}

// forwardedAddress reads a member of X-Forwarded-For. Some proxies add the port, and then brackets to IPv6.
func forwardedAddress(text string) (netip.Addr, bool) {
	text = strings.Trim(text, " \t")
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		addr = AddressOf(text)
	}
	return addr.Unmap().WithZone(""), addr.IsValid()
}

// Client is who a request counts for: see ClientOf.
func (a *Addresses) Client(r *http.Request) netip.Prefix { return ClientOf(a.Of(r)) }

// IsProxy reports whether an address is that of a trusted proxy. So is the invalid one, of a Unix socket.
func (a *Addresses) IsProxy(addr netip.Addr) bool {
	return !addr.IsValid() || slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// AddressOf returns the address in host:port, or the invalid one.
func AddressOf(hostPort string) netip.Addr {
	both, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	return both.Addr().Unmap().WithZone("")
}

// ClientOf returns the part of an address that is taken for one client: all of IPv4, a /64 of IPv6. It is invalid for
// the invalid address.
func ClientOf(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = subnetBits
	}
	client, _ := addr.Prefix(bits) // fails for more bits than there are only
	return client
}
