package moves_test

import (
	"testing"

	"sluice/pipeline/pipelinetest"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }
