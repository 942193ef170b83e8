package prometheus_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const dashboard = "../grafana/sluice.json"

// panel is one of the dashboard.
type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, LegendFormat string }
}

func readPanels(t *testing.T) []panel {
	t.Helper()
	var board struct {
		UID, Title string
		Panels     []panel
	}
	must(t, json.Unmarshal([]byte(readFile(t, dashboard)), &board))
	if board.UID != "sluice" || len(board.Panels) < 20 {
		t.Fatalf("got the dashboard %q of %d panels", board.UID, len(board.Panels))
	}
	return board.Panels
}

// TestDashboard: the rows come in the order in which people look, no panel covers another, and the lights name alerts.
func TestDashboard(t *testing.T) {
	t.Parallel()
	panels := readPanels(t)
	var rows []string
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for i := range panels {
		p := &panels[i]
		if ids[p.ID] {
			t.Errorf("%s: the id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, covered := taken[[2]int{x, y}]; covered || x >= 24 {
					t.Fatalf("%s covers %q, or leaves the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	want := []string{
		"Is all well?", "The sale", "From accept to row", "The stores", "The workers", "Recovery", "Webhooks and money",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got the rows %q, want %q", rows, want)
	}
	names := alertNames(readRules(t))
	for _, word := range strings.FieldsFunc(readFile(t, dashboard), func(r rune) bool { return strings.ContainsRune(` ".,\`, r) }) {
		if strings.HasPrefix(word, "Sluice") && word != "Sluice" && word != "Sluice*" && !slices.Contains(names, word) {
			t.Errorf("the dashboard names %s, which is no alert", word)
		}
	}
}

// TestDashboardAsksWhatPrometheusUnderstands has promtool check each expression as if it were a rule.
func TestDashboardAsksWhatPrometheusUnderstands(t *testing.T) {
	t.Parallel()
	promtool := requireTool(t, "promtool")
	variables := strings.NewReplacer("$__rate_interval", "1m", "$sale", ".*")
	var rules []map[string]string
	panels := readPanels(t)
	for i := range panels {
		for _, target := range panels[i].Targets {
			// Each rule needs a name of its own.
			rules = append(rules, map[string]string{
				"record": "check:" + strings.Repeat("x", len(rules)+1), "expr": variables.Replace(target.Expr),
			})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	must(t, err)
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	must(t, os.WriteFile(file, text, 0o600))
	if output, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, output)
	}
}
