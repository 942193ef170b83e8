// Command worker carries accepted orders from the Redis stream to Postgres. Run as many as you like.
package main

import (
	"os"

	"sluice/internal/config"
	"sluice/internal/process"
)

func main() { os.Exit(process.Main(config.Worker, process.RunWorker)) }
