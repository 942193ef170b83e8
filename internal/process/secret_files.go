package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/httpapi"
	"sluice/httpapi/entry"
	"sluice/internal/config"
	"sluice/pipeline/retry"
)

// secretFilesEvery is how often the files of secrets are read: after it a new secret counts.
const secretFilesEvery = 10 * time.Second

// secretFile is the file of a setting that can change while the program runs.
type secretFile struct {
	setting, path string
	read          func() (string, error)
	text          string // that is in force
	wrong         string // the error of the last look, so that it is logged once
	replace       func(text string) error

	// Of two files that belong together, what two looks in a row have found counts: one may be replaced before the
	// other.
	pair bool
	seen string // by the last look, of a pair
}

// secretFiles reads files again and again, rather than wait for a signal: who replaces a secret in a mounted file has
// no way to send one.
type secretFiles struct {
	files   []*secretFile
	log     *slog.Logger
	results *prometheus.CounterVec
}

func newSecretFiles(reg prometheus.Registerer, log *slog.Logger) *secretFiles {
	return &secretFiles{log: log, results: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_secret_reloads_total",
		Help: "Changed files of secrets, by setting and result: replaced, or refused (the secret before counts).",
	}, []string{"setting", "result"})}
}

// secretFiles are those of this api.
func (a *api) secretFiles() *secretFiles {
	s := newSecretFiles(a.registry, a.parts.Log)
	s.addCertificates(a.certificates)
	s.add(a.cfg, "ADMIN_TOKEN", func(text string) error {
		token, err := config.ParseAdminToken(text)
		if err == nil {
			a.operators.ReplaceBootstrap(token)
		}
		return err
	})
	s.add(a.cfg, "PAYMENT_WEBHOOK_SECRET", func(text string) error {
		secrets, err := config.ParseWebhookSecrets(text)
		if err != nil {
			return err
		}
		return a.webhookSecrets.Replace(secrets)
	})
	s.add(a.cfg, "ENTRY_TICKET_KEYS", func(text string) error {
		keys, err := entry.ParseKeys(text)
		if err != nil {
			return err
		}
		return a.entry.ReplaceKeys(keys)
	})
	return s
}

func (s *secretFiles) add(cfg config.Config, setting string, replace func(string) error) {
	path, ok := cfg.Files[setting]
	if !ok {
		return
	}
	// What counts now may have been read from another version of the file: the first look settles it.
	s.watch(&secretFile{
		setting: setting, path: path, replace: replace, read: func() (string, error) { return config.ReadSecret(path) },
	})
}

func (s *secretFiles) watch(file *secretFile) {
	s.files = append(s.files, file)
	for _, result := range []string{"replaced", "refused"} {
		s.results.WithLabelValues(file.setting, result)
	}
}

// addCertificates watches certificates, each with its key.
func (s *secretFiles) addCertificates(all []*shownCertificate) {
	for _, c := range all {
		s.watch(&secretFile{
			setting: c.setting, path: c.files.Cert, read: c.files.Read, text: c.text, replace: c.Replace, pair: true,
		})
	}
}

// run looks at the files until the context ends.
func (s *secretFiles) run(ctx context.Context) {
	for ; ctx.Err() == nil; retry.Sleep(ctx, secretFilesEvery) {
		for _, file := range s.files {
			s.look(file)
		}
	}
}

func (s *secretFiles) look(file *secretFile) {
	first := file.text == ""
	text, err := file.read()
	if err == nil && text == file.text {
		file.wrong, file.seen = "", text
		return
	}
	if file.pair {
		found := text
		if err != nil {
			found = err.Error()
		}
		if file.seen != found {
			file.seen = found
			return
		}
	}
	if err == nil {
		err = file.replace(text)
	}
	if err != nil {
		if err.Error() != file.wrong {
			file.wrong = err.Error()
			s.results.WithLabelValues(file.setting, "refused").Inc()
			s.log.Error("a changed secret can't be used; the one before counts", "setting", file.setting, "file", file.path,
				"error", err)
		}
		return
	}
	file.text, file.wrong = text, ""
	if !first {
		s.results.WithLabelValues(file.setting, "replaced").Inc()
		s.log.Info("a secret was replaced", "setting", file.setting, "file", file.path)
	}
}

// paymentSecrets returns nil where there are none.
func paymentSecrets(cfg config.Config, log *slog.Logger) (*httpapi.WebhookSecrets, error) {
	if len(cfg.WebhookSecrets) == 0 {
		log.Warn("PAYMENT_WEBHOOK_SECRET is not set: webhooks of payments are turned away")
		return nil, nil
	}
	return httpapi.NewWebhookSecrets(cfg.WebhookSecrets)
}
