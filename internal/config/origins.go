package config

import (
	"fmt"
	"net/url"
	"strings"
)

// origins parses the origins of pages, separated by commas or spaces, as a browser writes them in the header Origin.
func origins(into *[]string) func(string) error {
	return func(text string) error {
		list, err := listOf(text)
		if err != nil {
			return err
		}
		for _, origin := range list {
			u, err := url.Parse(origin)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Contains(u.Host, "*") ||
				origin != u.Scheme+"://"+strings.ToLower(u.Host) {
				return fmt.Errorf("%q is not an origin: name each as a browser does, such as https://shop.example.com, "+
					"in lower case, without a path, and without *", origin)
			}
		}
		*into = list
		return nil
	}
}
