// Package prometheus is a module of its own: it pins the Prometheus that tests the alerts and the dashboard of
// manifests/monitoring.
package prometheus

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// every is how often rules are evaluated, and series have samples.
const every = time.Minute

// example are series, and when an alert fires on them.
type example struct {
	Alert string `json:"alert"`
	// Says is what the series stand for.
	Says string `json:"says"`
	// Series are those of promtool: a selector to values, one per minute, as in 0+1x60.
	Series map[string]string `json:"series"`
	// Fires is whether it fires at any time within 24 hours; At is when it first does.
	Fires bool   `json:"fires"`
	At    string `json:"at"`
}

// TestAlerts: every alert fires on the series that it is for, at the time it should, and not on those it is not for.
func TestAlerts(t *testing.T) {
	all := alerts(t)
	data, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var examples []example
	if err := yaml.UnmarshalStrict(data, &examples); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, e := range examples {
		t.Run(e.Alert+": "+e.Says, func(t *testing.T) {
			rule, ok := all[e.Alert]
			if !ok {
				t.Fatalf("there is no alert %s", e.Alert)
			}
			at, fired := firstFires(t, rule, e.Series)
			if fired != e.Fires || fired && at.String() != e.At {
				t.Errorf("it fires: %t, after %s; want %t, after %s", fired, at, e.Fires, e.At)
			}
		})
		fires[e.Alert], silent[e.Alert] = fires[e.Alert] || e.Fires, silent[e.Alert] || !e.Fires
	}
	for name := range all {
		if !fires[name] || !silent[name] {
			t.Errorf("alert %s needs an example on which it fires, and one on which it does not", name)
		}
	}
}

// alerts returns the rules that users load.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	file := filepath.Join("..", "..", "..", "..", "manifests", "monitoring", "alerts.yaml")
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule
		}
	}
	return all
}

// firstFires evaluates a rule for 24 hours.
func firstFires(t *testing.T, rule rulefmt.Rule, series map[string]string) (at time.Duration, fired bool) {
	t.Helper()
	load := "load " + model.Duration(every).String() + "\n"
	for selector, values := range series {
		load += "  " + selector + " " + values + "\n"
	}
	storage := promqltest.LoadedStorage(t, load)
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery), storage)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), 0, labels.FromMap(rule.Labels),
		labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for ; at <= 24*time.Hour; at += every {
		if _, err := alert.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), query, nil, 0); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(alert.ActiveAlerts(), func(a *rules.Alert) bool { return a.State == rules.StateFiring }) {
			return at, true
		}
	}
	return 0, false
}
