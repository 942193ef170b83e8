// Command api answers buyers over HTTP.
package main

import (
	"os"

	"sluice/internal/config"
	"sluice/internal/process"
)

func main() { os.Exit(process.Main(config.API, process.RunAPI)) }
