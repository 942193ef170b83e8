package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"sluice/pipeline"
)

const (
	// fetchTimeout bounds one fetch of keys, from the look-up of the name to the end of the body.
	fetchTimeout = 5 * time.Second
	// maxJWKSBytes is far above the keys of any issuer: maxKeys of RSA with 4096 bits and their certificates.
	maxJWKSBytes = 512 << 10
)

// fetcher gets a JWK set by HTTP.
type fetcher struct {
	url    string
	client *http.Client
}

func newFetcher(address string) fetcher {
	return fetcher{address, &http.Client{
		Timeout: fetchTimeout,
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			DialContext:       (&net.Dialer{Timeout: fetchTimeout}).DialContext,
			DisableKeepAlives: true, // minutes lie between two fetches
		},
		// Keys come from where the setting says, and from nowhere that it leads to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// fetch returns the body.
func (f fetcher) fetch(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxJWKSBytes+1))
	if err == nil && len(body) > maxJWKSBytes {
		err = fmt.Errorf("it sent more than %d bytes", maxJWKSBytes)
	}
	return body, err
}

// validateJWKSURL refuses what anybody on the way could change: keys must come by TLS, or from this machine.
func validateJWKSURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Fragment != "" || u.User != nil {
		return errors.New("it is no URL such as https://issuer.example.com/.well-known/jwks.json, without user and fragment")
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return pipeline.Errorf(pipeline.KindInvalid,
			"it must be https: anybody between here and there could put other keys in place (http is for this machine only)")
	}
	return nil
}
