package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// goPrometheus runs a go command in the module that pins Prometheus, without all that discovers targets in clouds.
func goPrometheus(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append(args[:1:1], append([]string{"-tags=remove_all_sd"}, args[1:]...)...)...)
	cmd.Dir = "prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlerts: each fires when it should, by Prometheus' own rules engine.
func TestAlerts(t *testing.T) {
	goPrometheus(t, "test", "-count=1", ".")
}

// TestDocsSayWhatAlertsMean: each alert has a heading of its own, to which it links, and no alert that does not exist
// has one.
func TestDocsSayWhatAlertsMean(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs := string(text)
	names := map[string]bool{}
	for _, group := range alerts(t) {
		for _, rule := range group.Rules {
			names[rule.Alert] = true
			if !strings.Contains(docs, "\n### "+rule.Alert+"\n\n`"+rule.Labels["severity"]+"`: ") {
				t.Errorf("docs/monitoring.md has no heading for %s, with its severity %s", rule.Alert, rule.Labels["severity"])
			}
			if want := "docs/monitoring.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("runbook_url of %s: %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
			}
		}
	}
	if headings := strings.Count(docs, "\n### Lockstep"); headings != len(names) {
		t.Errorf("docs/monitoring.md has %d headings, for %d alerts", headings, len(names))
	}
}

// TestQueries: every query of the dashboard has an answer from what the binaries export, and every series that an alert
// looks at is there.
func TestQueries(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "prometheus")
	goPrometheus(t, "build", "-o", binary, "github.com/prometheus/prometheus/cmd/prometheus")
	d := start(t)
	p := d.prometheus(binary)
	d.story()
	queries := dashboard(t)
	await.NoError(t, "every query of the dashboard has an answer, and every series of the alerts is there", func() error {
		var failed []error
		for _, q := range queries {
			failed = append(failed, p.answers(q), p.known(q))
		}
		for _, group := range alerts(t) {
			for _, rule := range group.Rules {
				failed = append(failed, p.known(query{"alert " + rule.Alert, rule.Expr}))
			}
		}
		return errors.Join(append(failed, p.rulesRun())...)
	})
	if err := p.known(query{"a typo", "sum(lockstep_gang_ganks)"}); err == nil {
		t.Error("a metric that does not exist is known: this test sees nothing")
	}
	if err := p.known(query{"a typo", `sum(lockstep_gang_gangs{state="unschedulabel"})`}); err == nil {
		t.Error("a state that does not exist is known: this test sees nothing")
	}
}

// query is an expression, and where it stands.
type query struct{ where, expr string }

// dashboard returns the queries of its panels, with what Grafana puts in for variables.
func dashboard(t *testing.T) (all []query) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$resource", string(localcluster.ResourceGPU))
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{fmt.Sprintf("panel %q", panel.Title), variables.Replace(target.Expr)})
		}
	}
	if len(all) < 50 {
		t.Fatalf("the dashboard has %d queries: they are not where this test looks", len(all))
	}
	return all
}

// group is a group of alerts.
type group struct {
	Rules []struct {
		Alert, Expr         string
		Labels, Annotations map[string]string
	}
}

func alerts(t *testing.T) []group {
	t.Helper()
	var file struct{ Groups []group }
	if err := yaml.Unmarshal(read(t, "alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) == 0 {
		t.Fatal("there are no alerts")
	}
	return file.Groups
}

// read returns a file of manifests/monitoring.
func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// answers returns an error if a query has no answer.
func (p *prometheus) answers(q query) error {
	var got struct{ Result []json.RawMessage }
	if err := p.get("query", url.Values{"query": {q.expr}}, &got); err != nil {
		return fmt.Errorf("%s: %s: %w", q.where, q.expr, err)
	}
	if len(got.Result) == 0 {
		return fmt.Errorf("%s: %s: the result is empty", q.where, q.expr)
	}
	return nil
}

// never are selectors of which a cluster that is well has no series. The metric has to be there, with these labels.
var never = map[string]bool{`lockstep_migration_migrations_total{phase="Failed"}`: true}

// known returns an error for the selectors in a query for which there are no series. Of what is compared other than for
// equality, such as the codes of failed requests, only the label has to be there.
func (p *prometheus) known(q query) error {
	var tree any
	if err := p.get("parse_query", url.Values{"query": {q.expr}}, &tree); err != nil {
		return fmt.Errorf("%s: %s: %w", q.where, q.expr, err)
	}
	found := selectors(tree)
	if len(found) == 0 {
		return fmt.Errorf("%s: %s: it looks at no series", q.where, q.expr)
	}
	var failed []error
	for _, s := range found {
		if err := p.answers(query{q.where, s}); err != nil {
			failed = append(failed, fmt.Errorf("%w; it is part of %s", err, q.expr))
		}
	}
	return errors.Join(failed...)
}

// selectors returns the selectors below a node of a parsed query.
func selectors(node any) (found []string) {
	switch n := node.(type) {
	case []any:
		for _, child := range n {
			found = append(found, selectors(child)...)
		}
	case map[string]any:
		if n["type"] == "vectorSelector" || n["type"] == "matrixSelector" {
			return []string{selector(n)}
		}
		for _, child := range n {
			found = append(found, selectors(child)...)
		}
	}
	return found
}

func selector(node map[string]any) string {
	name := fmt.Sprint(node["name"])
	var equal, there []string
	matchers, _ := node["matchers"].([]any)
	for _, m := range matchers {
		matcher, _ := m.(map[string]any)
		label := fmt.Sprint(matcher["name"])
		if label == "__name__" {
			continue
		}
		there = append(there, label+`!=""`)
		if matcher["type"] == "=" {
			equal = append(equal, fmt.Sprintf("%s=%q", label, matcher["value"]))
		} else {
			equal = append(equal, label+`!=""`)
		}
	}
	if text := name + "{" + strings.Join(equal, ", ") + "}"; !never[text] {
		return text
	}
	return name + "{" + strings.Join(there, ", ") + "}"
}

// rulesRun returns an error for the alerts that Prometheus did not load, or cannot evaluate.
func (p *prometheus) rulesRun() error {
	var got struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get("rules", nil, &got); err != nil {
		return fmt.Errorf("reading the rules: %w", err)
	}
	failed := []error{}
	if len(got.Groups) == 0 {
		failed = append(failed, errors.New("no rules are loaded"))
	}
	for _, group := range got.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				failed = append(failed, fmt.Errorf("alert %s is %s: %s", rule.Name, rule.Health, rule.LastError))
			}
		}
	}
	return errors.Join(failed...)
}
