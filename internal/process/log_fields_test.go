package process_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"sluice/internal/config"
	"sluice/internal/process"
)

// TestLogFieldsAreBounded: whatever somebody sends, no field of a line is longer than 1 KiB as it is written; what is
// short is left as it is.
func TestLogFieldsAreBounded(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		for name, unit := range map[string]string{
			"letters": "a", "quotes": `"`, "backslashes": `\`, "control characters": "\x01", "no UTF-8": "\xff", "runes": "ü",
			"an invisible rune": "\u2028", "a rune without a form": "\U0010ffff",
		} {
			var out bytes.Buffer
			log := process.NewLogger(&out, config.Config{LogFormat: format})
			long := strings.Repeat(unit, 64<<10)
			log.Info("m", "field", long)
			log.Info("m", "field", fmt.Errorf("refused: %w", errors.New(long)))
			log.Info("m", "field", []string{long})
			log.Info("m", "field", []byte(long))
			log.With("field", long).Info("m")
			log.WithGroup("g").Info("m", slog.Group("h", "field", long))
			log.Info(long)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != 7 {
				t.Errorf("%s of %s: %d lines", format, name, len(lines))
			}
			for i, line := range lines {
				if len(line) > 1<<10+150 || !strings.Contains(line, " bytes)") {
					t.Errorf("%s of %s: line %d has %d bytes: %.80s", format, name, i, len(line), line)
				}
			}
		}
		var out bytes.Buffer
		log := process.NewLogger(&out, config.Config{LogFormat: format})
		whole := strings.Repeat("a", 900)
		log.Info("m", "field", whole, "error", errors.New(whole), "stack", strings.Repeat("s", 8<<10), "n", 7)
		if text := out.String(); strings.Count(text, whole) != 2 || strings.Contains(text, "bytes)") ||
			strings.Count(text, "s") < 8<<10 {
			t.Errorf("%s: what is short is not whole: %s", format, text)
		}
	}
}
