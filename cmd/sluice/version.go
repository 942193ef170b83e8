package main

import (
	"runtime"

	"sluice/internal/process"
)

type versionCmd struct{}

// Run shows the version.
func (c *versionCmd) Run(a *app) error {
	if a.json {
		return a.printJSON(struct {
			Version string `json:"version"`
			Go      string `json:"go"`
		}{process.BuildVersion(), runtime.Version()})
	}
	sayf(a.out, "sluice %s (%s, %s/%s)", process.BuildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
