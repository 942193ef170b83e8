package main

import (
	"os"
	"os/exec"
	"strings"
)

// programName is how this program is called in a command that can be copied: sluice where that leads here, else as it
// was typed, bin/sluice for instance.
func programName() string {
	typed := os.Args[0]
	found, err := exec.LookPath("sluice")
	if err == nil && sameFile(found, typed) || !strings.Contains(typed, "/") {
		return "sluice"
	}
	return typed
}

func sameFile(a, b string) bool {
	first, errA := os.Stat(a)
	second, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(first, second)
}
