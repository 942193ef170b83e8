package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
)

// startProfile begins a CPU profile of this process, which is the api or the worker; the buyers are another one. It
// returns what ends it. Without a path it does nothing.
func startProfile(path, comparison string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(profilePath(path, comparison))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// profilePath puts the comparison's name before the extension: cpu.out becomes cpu.orders-64.out.
func profilePath(path, comparison string) string {
	extension := filepath.Ext(path)
	return fmt.Sprintf("%s.%s%s", strings.TrimSuffix(path, extension), comparison, extension)
}
