package config_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/config"
)

const (
	token    = "0123456789abcdef0123456789abcdef"
	database = "postgres://sluice:hunter2@db/sluice"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecretsFromFiles: each secret is taken from a file, by the environment or a flag, and the flag wins.
func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	other := strings.ToUpper(token)
	c, err := config.Load(config.API, []string{"--admin-token-file", secretFile(t, token+"\r\n")}, env(map[string]string{
		"DATABASE_URL": "", "DATABASE_URL_FILE": secretFile(t, database+"\n"), "ADMIN_TOKEN": other,
		"REDIS_URL": "", "REDIS_URL_FILE": secretFile(t, "redis://:hunter2@h:6379"),
		"ENCRYPTION_KEYS_FILE":        secretFile(t, "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
		"PAYMENT_WEBHOOK_SECRET_FILE": secretFile(t, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
	}), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.DatabaseURL != database || c.RedisURL != "redis://:hunter2@h:6379" || c.AdminToken != token ||
		len(c.WebhookSecrets) != 1 || c.Encryption == nil || len(c.Files) != 5 {
		t.Errorf("got %+v", c)
	}
	if _, err := config.Load(config.API, nil, env(map[string]string{"JWT_KEY_FILE": secretFile(t, "{}")}),
		io.Discard); err != nil {
		t.Error(err)
	}
}

// TestSecretsThatAreRefused: the error says what to do and repeats no secret.
func TestSecretsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		env  map[string]string
		says string
	}{
		"a token as a flag":      {[]string{"--admin-token", token}, nil, "list of processes"},
		"a password in a flag":   {[]string{"--database-url", database}, nil, "list of processes"},
		"a password as a query":  {[]string{"--database-url", "postgres://h/d?password=hunter2"}, nil, "list of processes"},
		"a password of Redis":    {[]string{"--redis-url=redis://:hunter2@h"}, nil, "list of processes"},
		"no URL":                 {[]string{"--redis-url=redis://:hunter2@h:x"}, nil, "list of processes"},
		"both flags":             {[]string{"--redis-url=redis://h", "--redis-url-file=/x"}, nil, "use one of them"},
		"the secret and a file":  {nil, map[string]string{"ADMIN_TOKEN": token, "ADMIN_TOKEN_FILE": "/x"}, "are both set"},
		"a file that is missing": {nil, map[string]string{"ADMIN_TOKEN_FILE": "/nowhere/token"}, "/nowhere/token"},
		"a directory":            {nil, map[string]string{"ADMIN_TOKEN_FILE": t.TempDir()}, "is not a file"},
		"an empty file":          {nil, map[string]string{"ADMIN_TOKEN_FILE": secretFile(t, " \n")}, "is empty"},
		"a huge file": {
			nil, map[string]string{"ADMIN_TOKEN_FILE": secretFile(t, strings.Repeat(token, 2049))}, "is larger than 64 KiB",
		},
		"a file of no token": {nil, map[string]string{"ADMIN_TOKEN_FILE": secretFile(t, "hunter2")}, "ADMIN_TOKEN_FILE"},
		"no key":             {nil, map[string]string{"ENCRYPTION_KEYS": "k1:hunter2"}, "ENCRYPTION_KEYS: key 1"},
	} {
		_, err := config.Load(config.API, test.args, env(test.env), io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), token) {
			t.Errorf("%s: the error repeats the secret: %v", name, err)
		}
	}
	if _, err := config.Load(config.API, []string{"--redis-url", "redis://u@h:1/2"}, env(nil), io.Discard); err != nil {
		t.Errorf("a URL without a password: %v", err)
	}
}
