package webhook

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"sluice/pipeline"
)

// maxURLBytes bounds an endpoint's URL; the table's constraint says the same.
const maxURLBytes = 2000

// Policy defines where events may be sent. The zero value is the safe one: https only, and only to public addresses.
type Policy struct {
	// AllowPrivate lets endpoints be inside the network or on this machine, and without TLS. For development, and where
	// receivers are inside the same network and operators are trusted with all of it.
	AllowPrivate bool
}

// CheckURL returns a KindInvalid error that says what is wrong with an endpoint's URL. It does not look the name up:
// the address is checked whenever a connection is made, because the name may resolve to another one by then.
func (p Policy) CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURLBytes:
		return invalidURL("it has %d bytes; at most %d are allowed", len(text), maxURLBytes)
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return invalidURL("write it as https://host/path")
	case u.Scheme != "https" && u.Scheme != "http":
		return invalidURL("%s is not https", u.Scheme)
	case u.User != nil:
		return invalidURL("leave out user and password; deliveries are signed")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return invalidURL("leave out what follows #; it is never sent")
	case !validPort(u):
		return invalidURL("the port is not a number from 1 to 65535")
	case p.AllowPrivate:
		return nil
	case u.Scheme != "https":
		return invalidURL("use https; plain http is allowed with WEBHOOK_ALLOW_PRIVATE=true only")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return invalidURL("%s is this machine; %s", host, privateHint)
	}
	if ip, err := netip.ParseAddr(host); err == nil && !public(ip) {
		return invalidURL("%s is not a public address; %s", host, privateHint)
	}
	return nil
}

// privateHint says how to allow a target that is refused for its address.
const privateHint = "targets inside the network are allowed with WEBHOOK_ALLOW_PRIVATE=true only"

func invalidURL(format string, args ...any) error {
	return pipeline.Errorf(pipeline.KindInvalid, "url: %s", fmt.Sprintf(format, args...))
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.Atoi(u.Port())
	return err == nil && n >= 1 && n <= 65535
}

// control is a net.Dialer's Control: it sees the address that is actually connected to, after every lookup and just
// before the connection. So it does not matter what a name resolved to when it was registered.
func (p Policy) control(_, address string, _ syscall.RawConn) error {
	if p.AllowPrivate {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %s can't be read", address)
	}
	if !public(at.Addr()) {
		return errPrivate
	}
	return nil
}

// errPrivate does not name the address: that would reveal what the name means inside the network to the user who chose
// it.
var errPrivate = pipeline.Errorf(pipeline.KindInvalid, "the host has an address that is not public; %s", privateHint)

// reserved are the blocks that IANA's registries (RFC 6890 and its successors) exclude from global use, besides those
// that netip knows, and the tunnels that lead to any IPv4 address.
var reserved = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // the last 32 bits are the IPv4 address
	global = netip.MustParsePrefix("2000::/3")     // all that IANA has assigned of IPv6
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// public reports whether an address is reachable on the public internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	if ip.Zone() != "" || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	if nat64.Contains(ip) {
		b := ip.As16()
		return public(netip.AddrFrom4([4]byte(b[12:])))
	}
	if ip.Is6() && !global.Contains(ip) {
		return false
	}
	for _, block := range reserved {
		if block.Contains(ip) {
			return false
		}
	}
	return true
}
