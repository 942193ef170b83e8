package httpapi

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

const (
	// profilesRoot is where Go's tools look for the profiles of a process.
	profilesRoot = "/debug/pprof/"
	// maxProfileSeconds bounds a profile that is taken over time. Nobody needs a longer one, and each costs the process
	// some percent of its speed.
	maxProfileSeconds = 120
)

// routeProfiles serves the profiles of this process (net/http/pprof). They cost time while they are taken, and a dump
// of goroutines shows how the program works, so they need the role admin. The server's write timeout does not bound a
// profile: its handler sets a later one.
func (a *admin) routeProfiles(e *echo.Echo) {
	for path, handler := range map[string]http.HandlerFunc{
		"":        pprof.Index,
		"cmdline": pprof.Cmdline,
		"profile": pprof.Profile,
		"symbol":  pprof.Symbol,
		"trace":   pprof.Trace,
		":name":   pprof.Index, // heap, goroutine, allocs, block, mutex, threadcreate
	} {
		e.GET(profilesRoot+path, boundSeconds(handler))
	}
}

func boundSeconds(handler http.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if text := c.QueryParam("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil || !(seconds > 0 && seconds <= maxProfileSeconds) {
				return fieldError{"seconds", fmt.Sprintf("use a number above 0, up to %d", maxProfileSeconds)}
			}
		}
		handler(c.Response(), c.Request())
		return nil
	}
}

// takesLong reports whether a request bounds itself: an export, or a profile.
func takesLong(c echo.Context) bool {
	return isExport(c) || strings.HasPrefix(c.Path(), profilesRoot)
}
