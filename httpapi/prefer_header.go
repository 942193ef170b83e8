package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	headerPrefer            = "Prefer"
	headerPreferenceApplied = "Preference-Applied"
)

// maxWait is the longest that an order waits to be stored before it is answered: half of what usual load balancers
// allow.
const maxWait = 30 * time.Second

// waitPreference reads `Prefer: wait=N` (RFC 7240): how long the client wants an answer to wait for its order to be
// stored, in whole seconds, at most maxWait. 0 means not at all. A preference is a wish, so one that can't be read is
// no error, and is ignored. Of several the first counts.
func waitPreference(h http.Header) time.Duration {
	for _, line := range h[headerPrefer] {
		for rest, more := line, true; more; {
			var one string
			one, rest, more = cutUnquoted(rest, ',')
			one, _, _ = cutUnquoted(one, ';') // wait has no parameters
			name, value, _ := strings.Cut(one, "=")
			if strings.EqualFold(strings.Trim(name, " \t"), "wait") {
				return waitSeconds(strings.Trim(value, " \t"))
			}
		}
	}
	return 0
}

// cutUnquoted is strings.Cut at the first separator outside of a quoted string.
func cutUnquoted(s string, separator byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++ // whatever follows means itself
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// waitSeconds reads the value: digits, which may be quoted. More digits than fit a number mean the longest wait.
func waitSeconds(text string) time.Duration {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > uint64(maxWait/time.Second) {
		return maxWait
	}
	return time.Duration(n) * time.Second
}

// appliedWait says that the preference was followed, and with which value.
func appliedWait(h http.Header, wait time.Duration) {
	h[headerPreferenceApplied] = []string{"wait=" + strconv.Itoa(int(wait/time.Second))}
}
