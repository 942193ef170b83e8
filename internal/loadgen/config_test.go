package loadgen

import (
	"strings"
	"testing"
	"time"
)

func TestValidateReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	good := Config{URL: "https://shop.example", Sales: []string{"drop-1"}, Connections: 1, Rate: 1, Length: time.Second}
	if err := good.Validate(); err != nil {
		t.Errorf("a good load: %v", err)
	}
	bad := Config{
		URL: "ftp://x", Sales: []string{"a/b"}, Quantity: -1, Connections: 5000, Rate: -1, WarmUp: -1, Length: -1,
		Waiting: -1, Deadline: -1, Headers: map[string]string{"X\r\nY": "z"}, UserHeader: "Host",
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, says := range []string{
		"ftp://x", "a/b", "quantity", "5000 connections", "rate", "warm-up", "length", "may wait", "deadline", `X\r\nY`,
		`"Host"`,
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q is missing in: %v", says, err)
		}
	}
}

func TestTargetOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]target{
		"http://127.0.0.1:8080":  {addr: "127.0.0.1:8080", host: "127.0.0.1:8080"},
		"http://127.0.0.1:8080/": {addr: "127.0.0.1:8080", host: "127.0.0.1:8080"},
		"https://shop.example":   {addr: "shop.example:443", host: "shop.example", secure: true},
		"http://[::1]:80":        {addr: "[::1]:80", host: "[::1]:80"},
	} {
		if got, err := targetOf(address); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", address, got, err, want)
		}
	}
	for _, address := range []string{
		"", "127.0.0.1:8080", "http://", "http://x/v1", "http://x?y", "http://u:secret@x", "unix:///x",
	} {
		_, err := targetOf(address)
		if err == nil {
			t.Errorf("%q: no error", address)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("a password is shown: %v", err)
		}
	}
}
