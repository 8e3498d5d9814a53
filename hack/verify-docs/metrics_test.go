package verifydocs

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// metric is what docs/metrics.md has to say of one, besides words.
type metric struct {
	Binary, Type, Labels string
}

// TestMetricsAreListed: docs/metrics.md lists the metrics that the code makes, and no others, each below the binary
// that serves it, with its type and its labels.
func TestMetricsAreListed(t *testing.T) {
	made := map[string]metric{}
	for _, root := range roots {
		for _, dir := range folders(t, root) {
			metricsOf(t, dir, made)
		}
	}
	if len(made) < 30 {
		t.Errorf("%d metrics are found in all: they are not where this test looks", len(made))
	}
	text, err := os.ReadFile(filepath.Join("docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed, binary := map[string]metric{}, ""
	row := regexp.MustCompile("^\\| `(lockstep_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|( [^|]+ \\|){2}$")
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading, is := strings.CutPrefix(line, "## "); is {
			binary = heading
		}
		found := row.FindStringSubmatch(line)
		switch {
		case found != nil:
			var labels []string
			for _, label := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(found[3], -1) {
				labels = append(labels, label[1])
			}
			listed[found[1]] = metric{Binary: binary, Type: found[2], Labels: strings.Join(labels, ",")}
		case strings.HasPrefix(line, "| `"):
			t.Errorf("this row does not say what it means and when to look: %s", line)
		}
	}
	if diff := cmp.Diff(made, listed); diff != "" {
		t.Errorf("metrics (-code +docs/metrics.md):\n%s", diff)
	}
}

// constructor matches the functions of k8s.io/component-base/metrics that make a metric.
var constructor = regexp.MustCompile(`^New(Counter|Gauge|Histogram)(Vec|Func|)$`)

// metricsOf adds the metrics that the code of a folder makes, by their names.
func metricsOf(t *testing.T, dir string, made map[string]metric) {
	t.Helper()
	constants := map[string]string{}
	inspect(t, dir, func(_ string, node ast.Node) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return
		}
		for i := range spec.Values {
			constants[spec.Names[i].Name] = text(spec.Values[i])
		}
	})
	inspect(t, dir, func(file string, node ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isNamed(called.X, "metrics") {
			return
		}
		m := metric{Binary: binaryOf(dir)}
		name := ""
		switch kind := constructor.FindStringSubmatch(called.Sel.Name); {
		case kind != nil:
			m.Type = strings.ToLower(kind[1])
			name = optionsName(call.Args[0], constants)
			if kind[2] == "Vec" {
				m.Labels = strings.Join(stringsOf(call.Args[1]), ",")
			}
		case called.Sel.Name == "NewDesc": // all that collectors collect are gauges
			m.Type, name = "gauge", joined(call.Args[0], constants)
			m.Labels = strings.Join(stringsOf(call.Args[2]), ",")
		default:
			return
		}
		if name == "" {
			t.Errorf("%s: the name of a metric is not made of constants", file)
			return
		}
		made[name] = m
	})
}

// binaryOf returns the binary that serves the metrics of a folder.
func binaryOf(dir string) string {
	switch dir = filepath.ToSlash(dir); {
	case dir == "plugins/defragmentation":
		return "lockstep-descheduler"
	case strings.HasPrefix(dir, "pkg/controllers/"), strings.HasPrefix(dir, "cmd/controller"):
		return "lockstep-controller"
	}
	return "lockstep-scheduler"
}

// optionsName returns the name in the options of a metric: &metrics.CounterOpts{...}.
func optionsName(options ast.Expr, constants map[string]string) string {
	address, ok := options.(*ast.UnaryExpr)
	if !ok {
		return ""
	}
	literal, ok := address.X.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	var parts []string
	fields := fieldsOf(literal)
	for _, field := range []string{"Namespace", "Subsystem", "Name"} {
		if part := joined(fields[field], constants); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "_")
}

// stringsOf returns the values of a literal of strings.
func stringsOf(expression ast.Expr) (values []string) {
	literal, ok := expression.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range literal.Elts {
		values = append(values, text(element))
	}
	return values
}
