package config

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"sluice/pipeline/operator"
)

const (
	// fileSuffix makes the name of the setting that names a secret's file.
	fileSuffix = "_FILE"
	// maxSecretBytes bounds a file of a secret: a set of public keys is the largest.
	maxSecretBytes = 64 << 10
)

// fileFlag is the flag by which a secret's file is named.
type fileFlag struct{ of *setting }

func (f fileFlag) String() string { return "" }

func (f fileFlag) Set(text string) error {
	f.of.fileText = &text
	return nil
}

// secretText returns a secret, from where it was set: a flag comes before the environment, as for every setting. Both
// the secret itself and a file in one place would leave open which of them counts.
func (s *setting) secretText(getenv func(string) string) (text, from string, err error) {
	var file string
	switch {
	case s.flagText != nil && s.fileText != nil:
		return "", "", fmt.Errorf("--%s and --%[1]s-file: use one of them", s.flagName())
	case s.flagText != nil:
		if s.hides == nil || s.hides(*s.flagText) {
			return "", "", fmt.Errorf("--%s has a secret that everybody on this machine can see in the list of processes: "+
				"set %s in the environment, or name a file with --%[1]s-file", s.flagName(), s.name)
		}
		return *s.flagText, s.name, nil
	case s.fileText != nil:
		file = *s.fileText
	default:
		text, file = getenv(s.name), getenv(s.name+fileSuffix)
		if text != "" && file != "" {
			return "", "", fmt.Errorf("%s and %[1]s%s are both set: use one of them", s.name, fileSuffix)
		}
	}
	if file == "" {
		return text, s.name, nil
	}
	text, err = ReadSecret(file)
	if err != nil {
		return "", "", fmt.Errorf("%s%s: %w", s.name, fileSuffix, err)
	}
	s.file = file
	return text, s.name + fileSuffix, nil
}

// ReadSecret returns what a file has, without the space around it. Its error repeats nothing of it.
func ReadSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe could hold its reader for ever
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSecretBytes+1))
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(data))
	switch {
	case len(data) > maxSecretBytes:
		return "", fmt.Errorf("%s is larger than %d KiB", path, maxSecretBytes>>10)
	case text == "":
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}

// passwordInURL reports whether a URL has a password. What can't be read may have one.
func passwordInURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return true
	}
	_, has := u.User.Password()
	for name := range u.Query() {
		has = has || strings.Contains(strings.ToLower(name), "password")
	}
	return has
}

// ParseWebhookSecrets parses PAYMENT_WEBHOOK_SECRET. Its error repeats no secret.
func ParseWebhookSecrets(text string) (secrets []string, err error) {
	return secrets, webhookSecrets(&secrets)(text)
}

// ParseAdminToken checks ADMIN_TOKEN. Its error does not repeat it.
func ParseAdminToken(text string) (string, error) {
	if err := operator.ValidateBootstrap(text); err != nil {
		return "", err
	}
	return text, nil
}
