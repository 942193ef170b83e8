package pipeline

import (
	"testing"

	_ "house/pipeline/admission"
)

func TestGate(t *testing.T) { clockAt(t, 1, 2, 3) }

func clockAt(t *testing.T, _, _, _ int) { t.Helper() }
