package lifecycle_test

import (
	"fmt"
	"os"
	"testing"

	"sluice/pipeline/pipelinetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(nodeRedis); url != "" { // this process is a node of TestExpiryOnManyNodes
		if err := runNode(url, os.Getenv(nodeDatabase)); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		return
	}
	pipelinetest.Main(m)
}
