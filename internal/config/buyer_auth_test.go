package config_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

// aKey is a public key; the private one is nobody's.
const aKey = `{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`

func TestAuthModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings map[string]string
		wrong    string // "": nothing
	}{
		"jwt with a URL": {map[string]string{
			"AUTH_MODE": "jwt", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a", "JWT_JWKS_URL": "https://i/keys", "HTTP_ADDR": ":80",
		}, ""},
		"jwt with a key": {map[string]string{
			"AUTH_MODE": "jwt", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a", "JWT_KEY": aKey, "HTTP_ADDR": "0.0.0.0:80",
		}, ""},
		"jwt alone": {map[string]string{"AUTH_MODE": "jwt"}, "JWT_ISSUER is missing"},
		"a path of no file": {map[string]string{
			"AUTH_MODE": "jwt", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a", "JWT_KEY_FILE": "/no/such/file",
		}, "JWT_KEY_FILE: stat /no/such/file"},
		"a leeway of an hour": {map[string]string{
			"AUTH_MODE": "jwt", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a", "JWT_KEY": aKey, "JWT_LEEWAY": "1h",
		}, "JWT_LEEWAY"},
		"no time": {map[string]string{"JWT_JWKS_MAX_AGE": "soon"}, "JWT_JWKS_MAX_AGE"},
		"proxy": {map[string]string{
			"AUTH_MODE": "proxy", "AUTH_PROXY_FROM": "10.0.0.7, fd00::/8", "HTTP_ADDR": ":80",
		}, ""},
		"proxy, socket": {map[string]string{
			"AUTH_MODE": "proxy", "AUTH_PROXY_FROM": "unix", "HTTP_ADDR": "unix:/run/s",
		}, ""},
		"proxy alone":       {map[string]string{"AUTH_MODE": "proxy"}, "AUTH_PROXY_FROM is missing"},
		"proxy anywhere":    {map[string]string{"AUTH_MODE": "proxy", "AUTH_PROXY_FROM": "0.0.0.0/0"}, "every address"},
		"a name":            {map[string]string{"AUTH_PROXY_FROM": "proxy.local"}, "AUTH_PROXY_FROM"},
		"host bits":         {map[string]string{"AUTH_PROXY_FROM": "10.0.0.7/24"}, "AUTH_PROXY_FROM"},
		"another mode":      {map[string]string{"AUTH_MODE": "oauth"}, "AUTH_MODE"},
		"a relative socket": {map[string]string{"HTTP_ADDR": "unix:s"}, "HTTP_ADDR"},
	} {
		_, err := config.Load(config.API, nil, env(c.settings), io.Discard)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
	}
	if _, err := config.Load(config.Worker, nil, env(map[string]string{"AUTH_MODE": "jwt"}), io.Discard); err != nil {
		t.Errorf("a worker, which has no buyers: %v", err)
	}
}

// TestJWTKeyFile: a key may be in a file, and what is in it is in no error.
func TestJWTKeyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key.json")
	settings := map[string]string{"AUTH_MODE": "jwt", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a", "JWT_KEY_FILE": path}
	for text, fine := range map[string]bool{aKey: true, "hunter2": false} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.API, nil, env(settings), io.Discard)
		if (err == nil) != fine || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", text, err)
		}
		if fine && (c.Tokens.Key != aKey || c.Tokens.Leeway != 30*time.Second || c.Tokens.Claim != "sub" ||
			strings.Join(c.Tokens.Algorithms, " ") != "RS256 ES256 EdDSA" || c.Tokens.JWKS.MaxAge != 24*time.Hour) {
			t.Errorf("got %+v", c.Tokens)
		}
	}
}
