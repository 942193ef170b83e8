package httpapi

import (
	"net/http"
	"time"
)

// The limits of a connection. A client that exceeds one is disconnected; an honest client reaches none.
const (
	readHeaderTimeout = 5 * time.Second  // from the first byte to the end of the headers: slow-header attacks end here
	readTimeout       = 10 * time.Second // headers and body together: 64 KiB in this time is a very slow phone
	// from the end of the headers to the end of the answer: above readTimeout and requestTimeout together
	writeTimeout = 20 * time.Second
	idleTimeout  = 75 * time.Second // a kept connection without requests: above the 60 s of usual load balancers
	// request line and headers: a large token (8 KiB) and the rest of a browser's headers
	maxHeaderBytes = 16 << 10
)

// Server returns a server for the public side with every limit set. Serve it on a Listener: then even what
// net/http itself refuses is answered with a problem document.
func Server(addr string, h http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}
