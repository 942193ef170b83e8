package auth

import (
	"net"
	"net/http"
	"net/netip"
)

// peer returns the address of the other end of the request's connection, and whether that is a Unix socket, which has
// none. A header never changes it.
func peer(r *http.Request) (addr netip.Addr, socket bool) {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return netip.Addr{}, true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	return from.Addr().Unmap().WithZone(""), false
}
