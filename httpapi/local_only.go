package httpapi

import (
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwardingHeaders are those by which proxies say for whom they ask.
var forwardingHeaders = []string{
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
}

// LocalOnly lets programs on this machine through to a handler that listens on a loopback address. A browser on this
// machine that shows a stranger's page can be made to ask this address under a name of the stranger's (DNS rebinding):
// the header Host tells. So does what a proxy adds, where one makes the address reachable for others. Hosts are further
// names by which the address may be called.
func LocalOnly(next http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if detail := foreign(r, hosts); detail != "" {
			p := newProblem(codeLocalOnly, detail)
			p.serve(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign says why a request does not come from this machine, or "".
func foreign(r *http.Request, hosts []string) string {
	if !isLocalHost(r.Host, hosts) {
		return "call it as localhost or 127.0.0.1, or name the host in ALLOWED_HOSTS"
	}
	for _, name := range forwardingHeaders {
		if len(r.Header[name]) > 0 && len(hosts) == 0 {
			return "a proxy forwards this request (" + name + "), and this address is for programs on this machine; " +
				"if the proxy is meant to, name its host in ALLOWED_HOSTS"
		}
	}
	return ""
}

func isLocalHost(hostPort string, allowed []string) bool {
	host := hostPort
	if name, _, err := net.SplitHostPort(hostPort); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback() || slices.Contains(allowed, host)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(allowed, host)
}

// serve answers a request that reaches no route.
func (p *problem) serve(w http.ResponseWriter, r *http.Request) {
	p.Instance, p.RequestID = r.URL.EscapedPath(), rand.Text()
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers are always JSON
		w.WriteHeader(p.Status)
		return
	}
	h := w.Header()
	secure(h)
	h[headerRequestID], h[headerContentType] = []string{p.RequestID}, problemType
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client has gone
}
