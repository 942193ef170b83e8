package prometheus_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"sluice/internal/programs"
	"sluice/internal/testkit"
)

const (
	rulesFile  = "sluice.rules.yml"
	testsFile  = "sluice.rules.test.yml"
	runbook    = "../../docs/runbook.md"
	consoleSrc = "../../console/alarms.go"
)

// The programs that these tests start are this binary again.
func TestMain(m *testing.M) {
	if code, served := programs.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rule is one of the rules file: an alert, or a record.
type rule struct {
	Alert       string
	Record      string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	must(t, yaml.Unmarshal([]byte(readFile(t, rulesFile)), &file))
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

func alertNames(rules []rule) (names []string) {
	for i := range rules {
		if rules[i].Alert != "" {
			names = append(names, rules[i].Alert)
		}
	}
	return names
}

// requireTool finds a program of Debian's package prometheus.
func requireTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed; on Debian: make setup-prometheus", name)
	}
	return path
}

// TestPromtool runs the rules' own tests.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool := requireTool(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", rulesFile}, {"check", "config", "prometheus.yml"}, {"test", "rules", testsFile},
	} {
		if output, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
	tested := readFile(t, testsFile)
	for _, name := range alertNames(readRules(t)) {
		if !strings.Contains(tested, `alertname="`+name+`", alertstate="firing"`) {
			t.Errorf("no test of promtool lets %s fire", name)
		}
	}
}

var (
	section      = regexp.MustCompile(`(?m)^### (\w+)\n\n((?:- .*\n(?:  .*\n)*)+)`)
	consoleAlert = regexp.MustCompile(`Alert: "(\w+)"`)
	// advices are what each section of the runbook says, in this order.
	advices = []string{"- **It means**", "- **Look at**", "- **Press**", "- **Don't worry**"}
)

// TestEveryAlertHasItsSection compares the alerts with the runbook, both ways, and with the names in the console.
func TestEveryAlertHasItsSection(t *testing.T) {
	t.Parallel()
	text := readFile(t, runbook)
	critical, warnings, found := strings.Cut(text, "\n## Warnings\n")
	if !found {
		t.Fatal("the runbook has no part about warnings")
	}
	parts := map[string]string{"critical": critical, "warning": warnings}
	rules := readRules(t)
	for i := range rules {
		r := &rules[i]
		if r.Alert == "" {
			continue
		}
		part, known := parts[r.Labels["severity"]]
		if !known {
			t.Errorf("%s: the severity is %q, want critical or warning", r.Alert, r.Labels["severity"])
		}
		if !strings.Contains(part, "\n### "+r.Alert+"\n") {
			t.Errorf("%s: the runbook has no section under its severity", r.Alert)
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/runbook.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s: runbook_url %q leads to another section", r.Alert, url)
		}
	}
	names, sections := alertNames(rules), section.FindAllStringSubmatch(text, -1)
	if len(sections) != len(names) {
		t.Errorf("the runbook has %d sections of the right form, the rules have %d alerts", len(sections), len(names))
	}
	for _, s := range sections {
		if !slices.Contains(names, s[1]) {
			t.Errorf("the runbook has a section %s, which is no alert", s[1])
		}
		at := -1
		for _, advice := range advices {
			next := strings.Index(s[2], advice)
			if next <= at {
				t.Errorf("the section %s lacks %q, or has it in another order", s[1], advice)
			}
			at = next
		}
	}
	inConsole := consoleAlert.FindAllStringSubmatch(readFile(t, consoleSrc), -1)
	if len(inConsole) < 5 {
		t.Errorf("the console names only %d alerts", len(inConsole))
	}
	for _, a := range inConsole {
		if !slices.Contains(names, a[1]) {
			t.Errorf("the console names %s, which is no alert", a[1])
		}
	}
}
