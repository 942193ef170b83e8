package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"regexp"

	"sluice/pipeline"
)

// maxProxies bounds AUTH_PROXY_FROM: each request is compared with all of them.
const maxProxies = 64

// headerName is a token of RFC 9110, section 5.6.2, of a sensible length.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$")

// ProxyOptions are the settings of AUTH_MODE=proxy.
type ProxyOptions struct {
	Header   string         // AUTH_PROXY_HEADER, which names the buyer; empty: UserHeader
	Networks []netip.Prefix // AUTH_PROXY_FROM: where the proxy's connections come from
	Socket   bool           // AUTH_PROXY_FROM has unix: so do those over a Unix socket
}

// Proxy believes a header of requests that come from a trusted proxy, which has authenticated the buyer and removed
// the header that the buyer may have sent.
type Proxy struct{ options ProxyOptions }

// NewProxy returns an error (pipeline.KindInvalid) for options by which nobody could be believed, or everybody.
func NewProxy(o ProxyOptions) (*Proxy, error) {
	if o.Header == "" {
		o.Header = UserHeader
	}
	switch {
	case !headerName.MatchString(o.Header):
		return nil, pipeline.Errorf(pipeline.KindInvalid, "AUTH_PROXY_HEADER %q can't be the name of a header", o.Header)
	case len(o.Networks) == 0 && !o.Socket:
		return nil, pipeline.Errorf(pipeline.KindInvalid, "AUTH_PROXY_FROM is missing: AUTH_MODE=proxy must know where the "+
			"proxy's requests come from, such as 10.0.0.7, 10.0.0.0/24 or unix")
	case len(o.Networks) > maxProxies:
		return nil, pipeline.Errorf(pipeline.KindInvalid, "AUTH_PROXY_FROM has %d networks; at most %d are taken",
			len(o.Networks), maxProxies)
	}
	for _, network := range o.Networks {
		if network.Bits() == 0 {
			return nil, pipeline.Errorf(pipeline.KindInvalid,
				"AUTH_PROXY_FROM %s is every address: anybody could be any buyer", network)
		}
	}
	o.Header = textproto.CanonicalMIMEHeaderKey(o.Header)
	return &Proxy{o}, nil
}

// Authenticate returns the header's value, where the proxy sent it. Errors: *Refused, *BadHeader.
func (p *Proxy) Authenticate(r *http.Request) (string, error) {
	challenge := fmt.Sprintf("Proxy header=%q", p.options.Header)
	if !p.trusts(r) {
		return "", &Refused{challenge, "buyers' requests are taken from the shop's proxy only; this one came another way"}
	}
	return userFrom(r, p.options.Header, challenge, "the proxy must name the buyer in the header "+p.options.Header)
}

func (p *Proxy) trusts(r *http.Request) bool {
	addr, socket := peer(r)
	if socket {
		return p.options.Socket
	}
	for _, network := range p.options.Networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}
