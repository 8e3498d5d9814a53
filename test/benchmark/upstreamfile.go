package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// upstreamFolders are the folders of k8s.io/kubernetes/test/integration/scheduler_perf that have workloads of gangs.
var upstreamFolders = []string{"workload_preemption", "podgroup/gangscheduling", "podgroup/tas"}

// upstreamCase is a test case of scheduler_perf, as far as its file is read here.
type upstreamCase struct {
	Name             string             `json:"name"`
	FeatureGates     map[string]bool    `json:"featureGates"`
	WorkloadTemplate []upstreamStep     `json:"workloadTemplate"`
	Workloads        []upstreamWorkload `json:"workloads"`

	folder string
	// defaultNode is the template of nodes that a step names none for, from the folder on.
	defaultNode string
}

// upstreamWorkload is a size of a test case.
type upstreamWorkload struct {
	Name   string         `json:"name"`
	Labels []string       `json:"labels"`
	Params map[string]any `json:"params"`
}

// upstreamStep is an operation. Fields that an operation of another kind would need are errors.
type upstreamStep struct {
	Opcode               string         `json:"opcode"`
	CountParam           string         `json:"countParam"`
	CountMultiplierParam string         `json:"countMultiplierParam"`
	Count                int            `json:"count"`
	Prefix               string         `json:"prefix"`
	Namespace            string         `json:"namespace"`
	TemplatePath         string         `json:"templatePath"`
	PodTemplatePath      string         `json:"podTemplatePath"`
	NodeTemplatePath     string         `json:"nodeTemplatePath"`
	TemplateParams       map[string]any `json:"templateParams"`
	CollectMetrics       bool           `json:"collectMetrics"`
}

// upstreamRoot returns the folder of scheduler_perf in the module cache, of the version that go.mod has.
func upstreamRoot() (string, error) {
	root, err := localcluster.Root()
	if err != nil {
		return "", err
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module k8s.io/kubernetes: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "integration", "scheduler_perf"), nil
}

// upstreamCases reads the test cases of the folders.
func upstreamCases() ([]upstreamCase, error) {
	root, err := upstreamRoot()
	if err != nil {
		return nil, err
	}
	var cases []upstreamCase
	for _, name := range upstreamFolders {
		folder := filepath.Join(root, filepath.FromSlash(name))
		data, err := os.ReadFile(filepath.Join(folder, "performance-config.yaml"))
		if err != nil {
			return nil, fmt.Errorf("reading workloads of scheduler_perf: %w", err)
		}
		var read []upstreamCase
		if err := yaml.UnmarshalStrict(data, &read); err != nil {
			return nil, fmt.Errorf("reading workloads of scheduler_perf in %s: %w", name, err)
		}
		for i := range read {
			read[i].folder = folder
			read[i].defaultNode = strings.Repeat("../", strings.Count(name, "/")+1) + "templates/node-default.yaml"
		}
		cases = append(cases, read...)
	}
	return cases, nil
}

// gates returns the feature gates of some cases as a flag has them.
func gates(cases ...upstreamCase) string {
	var list []string
	for _, c := range cases {
		for name, on := range c.FeatureGates {
			list = append(list, fmt.Sprintf("%s=%t", name, on))
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

// resolve returns a value, or that of the parameter that it names: "$initNodes".
func (w *upstreamWorkload) resolve(value any) (any, error) {
	text, ok := value.(string)
	if !ok || !strings.HasPrefix(text, "$") {
		return value, nil
	}
	found, ok := w.Params[strings.TrimPrefix(text, "$")]
	if !ok {
		return nil, fmt.Errorf("workload %s has no parameter %s", w.Name, text)
	}
	return found, nil
}

// count returns how many objects a step creates.
func (w *upstreamWorkload) count(s *upstreamStep) (int, error) {
	product := max(s.Count, 1)
	for _, param := range []string{s.CountParam, s.CountMultiplierParam} {
		if param == "" {
			continue
		}
		value, err := w.resolve(param)
		if err != nil {
			return 0, err
		}
		n, err := number(value)
		if err != nil {
			return 0, fmt.Errorf("reading %s of workload %s: %w", param, w.Name, err)
		}
		product *= int(n)
	}
	return product, nil
}

// env returns the values that the template of a step names, all but the index.
func (w *upstreamWorkload) env(s *upstreamStep) (map[string]any, error) {
	env := map[string]any{}
	for name, value := range s.TemplateParams {
		found, err := w.resolve(value)
		if err != nil {
			return nil, err
		}
		env[name] = found
	}
	return env, nil
}

// objects makes objects of a step from its template.
type objects struct {
	template *template.Template
	env      map[string]any
}

func (c *upstreamCase) objects(w *upstreamWorkload, s *upstreamStep, path string) (*objects, error) {
	data, err := os.ReadFile(filepath.Join(c.folder, filepath.FromSlash(path)))
	if err != nil {
		return nil, fmt.Errorf("reading a template of %s: %w", c.Name, err)
	}
	parsed, err := template.New(path).Funcs(upstreamFuncs).Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("reading a template of %s: %w", c.Name, err)
	}
	env, err := w.env(s)
	return &objects{template: parsed, env: env}, err
}

// read writes object number i into an object of the API.
func (o *objects) read(i int, into any) error {
	env := map[string]any{"Index": i}
	for name, value := range o.env {
		env[name] = value
	}
	var text bytes.Buffer
	if err := o.template.Execute(&text, env); err != nil {
		return fmt.Errorf("filling in %s: %w", o.template.Name(), err)
	}
	if err := yaml.UnmarshalStrict(text.Bytes(), into); err != nil {
		return fmt.Errorf("reading %s: %w", o.template.Name(), err)
	}
	return nil
}

// upstreamFuncs are the functions that the templates call.
var upstreamFuncs = template.FuncMap{
	"AddInt":    arithmetic(func(a, b int64) int64 { return a + b }),
	"DivideInt": arithmetic(func(a, b int64) int64 { return a / b }),
	"Mod":       arithmetic(func(a, b int64) int64 { return a % b }),
}

func arithmetic(of func(a, b int64) int64) func(a, b any) (int64, error) {
	return func(a, b any) (int64, error) {
		one, err := number(a)
		if err != nil {
			return 0, err
		}
		two, err := number(b)
		if err != nil {
			return 0, err
		}
		return of(one, two), nil
	}
}

// number reads a whole number, as YAML or a template has it.
func number(value any) (int64, error) {
	n, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	if err != nil {
		return 0, fmt.Errorf("reading a number: %w", err)
	}
	return int64(n), nil
}
