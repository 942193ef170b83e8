package main

import (
	"runtime"

	"sluice/internal/process"
)

type versionCmd struct{}

// Run shows the version.
func (c *versionCmd) Run(a *app) error {
	version := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}{process.BuildVersion(), runtime.Version()}
	return a.answer(version, "sluice %s (%s, %s/%s)", version.Version, version.Go, runtime.GOOS, runtime.GOARCH)
}
