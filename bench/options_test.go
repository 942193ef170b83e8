package main

import (
	"io"
	"strings"
	"testing"
)

func TestReadOptions(t *testing.T) {
	o, err := readOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range sectionNames() {
		if !o.wants(section) {
			t.Errorf("section %s is not in the default run", section)
		}
	}
	o, err = readOptions([]string{"-connections", "8, 16", "-sections", "orders,persist", "-rounds", "3"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Connections) != 2 || o.Connections[1] != 16 || o.Rounds != 3 || o.wants("latency") || !o.wants("persist") {
		t.Errorf("got %+v", o)
	}
}

func TestReadOptionsReportsAllThatIsWrong(t *testing.T) {
	_, err := readOptions([]string{
		"-rounds", "0", "-seconds", "1000", "-clients", "0", "-rate", "-1", "-batch", "9999", "-rows", "0",
		"-connections", "0", "-sections", "nothing", "-loads", "0", "-load-seconds", "0", "-sales", "0", "-backlog", "0",
		"-workers", "17",
	}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, flag := range []string{
		"-rounds", "-seconds", "-clients", "-rate", "-batch", "-rows", "-connections",
		"-sections", "-loads", "-load-seconds", "-sales", "-backlog", "-workers",
	} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is wrong and not reported: %v", flag, err)
		}
	}
	for _, args := range [][]string{
		{"-connections", "x"},
		{"-loads", "x"},
		{"-workers", "1,"},
		{"-plots", "x", "-sections", "locks"},
		{"leftover"},
		{"-unknown"},
	} {
		if _, err := readOptions(args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func TestProfilePath(t *testing.T) {
	for path, want := range map[string]string{"cpu.out": "cpu.orders-64.out", "/tmp/x/cpu": "/tmp/x/cpu.orders-64"} {
		if got := profilePath(path, "orders-64"); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}
