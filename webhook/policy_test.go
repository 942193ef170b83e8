package webhook_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/pipeline"
	"sluice/webhook"
)

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for want, addresses := range map[bool]string{
		true: `
			8.8.8.8 93.184.216.34 172.15.0.1 172.32.0.1 100.63.255.255 100.128.0.1 192.0.1.1 198.17.0.1 198.20.0.1
			223.255.255.255 2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2400:cb00::1`,
		false: `
			0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 127.0.0.1 127.255.255.254 100.64.0.1 100.127.255.255 169.254.169.254
			172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.7
			203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1
			::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::8.8.8.8 100::1 2001::1
			2001:db8::1 2002:7f00:1::1 2002:808:808::1 3fff::1 5f00::1 fc00::1 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1
			ff02::1 2606:4700::1%eth0`,
	} {
		for _, text := range strings.Fields(addresses) {
			if got := webhook.Public(netip.MustParseAddr(text)); got != want {
				t.Errorf("%s: got %t, want %t", text, got, want)
			}
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // what the safe policy says; inside: what the other one does
		"https://example.com":                        "",
		"https://example.com:8443/hook?token=1":      "",
		"https://8.8.8.8/":                           "",
		"https://[2606:4700::1111]/":                 "",
		"https://localhost.example.com/":             "",
		"http://example.com/":                        "use https",
		"https://localhost/":                         "this machine",
		"https://LOCALHOST./":                        "this machine",
		"https://a.localhost:1/":                     "this machine",
		"https://127.0.0.1/":                         "not a public address",
		"https://10.1.2.3:9/":                        "not a public address",
		"https://[::1]/":                             "not a public address",
		"https://[::ffff:169.254.169.254]/":          "not a public address",
		"https://[fe80::1%25eth0]/":                  "not a public address",
		"":                                           "both: https://host/path",
		"example.com/hook":                           "both: https://host/path",
		"https:///hook":                              "both: https://host/path",
		"https:example.com":                          "both: https://host/path",
		"https://exa mple.com/":                      "both: https://host/path",
		"ftp://example.com/":                         "both: ftp is not https",
		"file://example.com/etc/passwd":              "both: file is not https",
		"https://ann:secret@example.com/":            "both: leave out user",
		"https://ann@example.com/":                   "both: leave out user",
		"https://example.com/#x":                     "both: #",
		"https://example.com/#":                      "both: #",
		"https://example.com:0/":                     "both: port",
		"https://example.com:65536/":                 "both: port",
		"https://example.com:/":                      "both: port",
		"https://example.com/\x00":                   "both: https://host/path",
		"https://e.com/" + strings.Repeat("a", 2000): "both: 2000 are allowed",
	} {
		rule, both := strings.CutPrefix(want, "both: ")
		safe, inside := (webhook.Policy{}).CheckURL(text), (webhook.Policy{AllowPrivate: true}).CheckURL(text)
		if (safe == nil) != (want == "") {
			t.Errorf("%q: got %v, want %q", text, safe, want)
		}
		if safe != nil && (!strings.Contains(safe.Error(), rule) || pipeline.KindOf(safe) != pipeline.KindInvalid) {
			t.Errorf("%q: got %v, want %q", text, safe, want)
		}
		if (inside != nil) != both {
			t.Errorf("%q inside: got %v", text, inside)
		}
		for _, err := range []error{safe, inside} {
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: the error contains a secret: %v", text, err)
			}
		}
	}
}

func TestValidateTypes(t *testing.T) {
	t.Parallel()
	if err := webhook.ValidateTypes(nil); err != nil {
		t.Error(err)
	}
	if err := webhook.ValidateTypes(webhook.Types); err != nil {
		t.Error(err)
	}
	for _, types := range [][]string{
		{"order.paid", "order.paid"}, {"order"}, {""}, {webhook.TypeTest}, {"order.paid", "x"},
	} {
		if err := webhook.ValidateTypes(types); pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("%q: got %v", types, err)
		}
	}
}

func TestSecretsDiffer(t *testing.T) {
	t.Parallel()
	a, b := webhook.NewSecret(), webhook.NewSecret()
	if a == b || !strings.HasPrefix(a, "whsec_") {
		t.Errorf("got %s and %s", a, b)
	}
	if _, err := standardwebhooks.NewWebhook(a); err != nil {
		t.Errorf("%s: %v", a, err)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	for failures, middle := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 1000: time.Hour,
	} {
		different := map[time.Duration]bool{}
		for range 50 {
			got := webhook.Backoff(failures)
			different[got] = true
			if got < middle/2 || got > min(middle*3/2, webhook.BackoffMax) {
				t.Errorf("after %d failures: %s, want about %s", failures, got, middle)
			}
		}
		if len(different) < 10 {
			t.Errorf("after %d failures: only %d different pauses", failures, len(different))
		}
	}
}
