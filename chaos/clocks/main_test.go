package clocks_test

import (
	"testing"

	"sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
