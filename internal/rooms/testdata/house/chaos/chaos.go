package chaos

import (
	"house/pipeline"
	"house/pipeline/worker"
)

func run() (int, string) { return pipeline.Limit, worker.Name }
