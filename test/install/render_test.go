package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// system is where the manifests install Lockstep.
const system = "kube-system"

// root is the folder of the repository. TestMain sets it.
var root string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	// Helm keeps caches and settings in the home of its user.
	home, err := os.MkdirTemp("", "lockstep-helm-")
	if err != nil {
		return 0, fmt.Errorf("making a folder for helm: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		if err := os.Setenv(name, home); err != nil {
			return 0, fmt.Errorf("telling helm its folder: %w", err)
		}
	}
	if root, err = localcluster.Root(); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// chart returns the folder of the chart.
func chart() string { return filepath.Join(root, "manifests", "chart") }

// tool runs one of the tools and returns what it prints.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	if err := localcluster.BuildTools(t.Context(), t.Output(), name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".local", "bin", name), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return string(out), nil
}

// mustRun does what tool does, where nothing may go wrong.
func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := tool(t, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kustomize renders overlays of manifests/, and files there as they are.
func kustomize(t *testing.T, paths ...string) string {
	t.Helper()
	var all []string
	for _, path := range paths {
		path = filepath.Join(root, "manifests", path)
		if filepath.Ext(path) == "" {
			all = append(all, mustRun(t, "kubectl", "kustomize", path))
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, "\n---\n")
}

// overlay renders folders of manifests/ in one overlay, with another configuration of the scheduler if there is one.
func overlay(t *testing.T, config string, folders ...string) string {
	t.Helper()
	dir := t.TempDir()
	text := "namespace: " + system + "\n"
	if config != "" {
		data, err := os.ReadFile(config)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "config.yaml"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		text += "configMapGenerator:\n- name: lockstep-scheduler-config\n  behavior: replace\n  files: [config.yaml]\n"
	}
	text += "resources:\n"
	for _, folder := range folders {
		relative, err := filepath.Rel(dir, filepath.Join(root, "manifests", folder))
		if err != nil {
			t.Fatal(err)
		}
		text += "- " + relative + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return mustRun(t, "kubectl", "kustomize", dir)
}

// template renders the chart as a release in a namespace.
func template(t *testing.T, namespace string, values ...string) string {
	t.Helper()
	return mustRun(t, "helm", slices.Concat([]string{"template", "lockstep", chart(), "--namespace", namespace}, set(values))...)
}

// set returns the flags of helm for values such as scheduler.replicas=3; file:scheduler.config=PATH is what is in a
// file, json:page.ingress={} is JSON.
func set(values []string) []string {
	var flags []string
	for _, value := range values {
		flag := "--set"
		if kind, rest, ok := strings.Cut(value, ":"); ok && (kind == "file" || kind == "json") {
			flag, value = "--set-"+kind, rest
		}
		flags = append(flags, flag, value)
	}
	return flags
}

// objects returns the objects in a YAML text, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("reading what was rendered: %v", err)
		}
		if len(object.Object) == 0 {
			continue // comments only
		}
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if all[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		all[key] = object
	}
}

// field returns what is at a path of an object, as Go prints it.
func field(object *unstructured.Unstructured, path string) string {
	if object == nil {
		return "no such object"
	}
	value, found, err := unstructured.NestedFieldNoCopy(object.Object, strings.Fields(path)...)
	if err != nil || !found {
		return "no such field"
	}
	return fmt.Sprint(value)
}
