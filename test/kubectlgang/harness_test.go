// Package kubectlgang_test runs the binary kubectl-gang against a control plane with gangs of each kind, queues and a
// Reservation, which the scheduler and the controller have placed.
package kubectlgang_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// stage is a cluster, and the binary that looks at it.
type stage struct {
	cluster *localcluster.Cluster
	binary  string
	// audit is the log of all requests.
	audit string
	// shown is what the docs show of commands that were not run yet.
	shown map[string]string
}

// begin starts a cluster of two zones, four racks and eight nodes with eight GPUs each, with a scheduler and a
// controller.
func begin(t *testing.T) *stage {
	t.Helper()
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := localcluster.BuildCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	bin, audit := filepath.Join(root, "bin"), filepath.Join(t.TempDir(), "audit.log")
	c := localcluster.Run(t, localcluster.Options{
		Nodes: []localcluster.NodePool{{
			Count: 8, NamePrefix: "gpu-", LabelsFor: localcluster.Topology(8, 2, 4),
			Allocatable: v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("8")},
		}},
		FeatureGates: "GenericWorkload=true", RuntimeConfig: "scheduling.k8s.io/v1beta1=true",
		AuditLog: audit, AuditReads: true,
		Manifests: []string{filepath.Join(root, "manifests", "crds"), filepath.Join("testdata", "queues.yaml")},
	})
	// The deployments have no nodes to run on: they are there for their roles, and the configuration. The test runs the
	// programs.
	if out, err := c.Kubectl(t.Context(), "apply", "--server-side", "-k", filepath.Join(root, "manifests", "base")); err != nil {
		t.Fatalf("installing: %v\n%s", err, out)
	}
	config, err := filepath.Abs(filepath.Join("testdata", "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"lockstep-scheduler":  {"--kubeconfig=" + c.Kubeconfig(), "--config=" + config, "--bind-address=127.0.0.1", "--secure-port=0"},
		"lockstep-controller": {"--kubeconfig=" + c.Kubeconfig(), "--scheduler-config=" + config, "--metrics-bind-address=0", "--health-probe-bind-address=0"},
	} {
		if _, err := c.Start(name, filepath.Join(bin, name), args, ""); err != nil {
			t.Fatal(err)
		}
	}
	return &stage{cluster: c, binary: filepath.Join(bin, "kubectl-gang"), audit: audit}
}

func (s *stage) apply(t *testing.T, file string) {
	t.Helper()
	if err := s.cluster.Apply(t.Context(), filepath.Join("testdata", file)); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl as the administrator.
func (s *stage) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := s.cluster.Kubectl(t.Context(), args...); err != nil {
		t.Fatalf("running kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// start runs kubectl gang until the test is over, or the function is called, and returns the lines that it prints.
func (s *stage) start(t *testing.T, args ...string) (lines <-chan string, stderr *bytes.Buffer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig())
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	printed := make(chan string, 100)
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			printed <- scanner.Text()
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(func() {
		if stop(); t.Failed() {
			t.Logf("kubectl gang %s complained of\n%s", strings.Join(args, " "), stderr)
		}
	})
	return printed, stderr, stop
}

// try runs kubectl gang, and returns what it wrote to stdout and stderr.
func (s *stage) try(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig())
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	return out.String(), complaints.String(), err
}

// run does what try does, for commands that have to succeed.
func (s *stage) run(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := s.try(t, args...)
	if err != nil {
		t.Fatalf("running kubectl gang %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}

// items runs kubectl gang -o json, or yaml, and returns what is listed.
func items[T any](s *stage, t *testing.T, kind, format string, args ...string) []T {
	t.Helper()
	var list struct {
		APIVersion, Kind string
		Items            []T
	}
	out := []byte(s.run(t, append(args, "-o", format)...))
	if format == "yaml" {
		var err error
		if out, err = yaml.YAMLToJSON(out); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("reading %s: %v\n%s", format, err, out)
	}
	if list.APIVersion != "kubectl.lockstep.dev/v1alpha1" || list.Kind != kind {
		t.Errorf("kubectl gang %s prints a %s of %s, want a %s", args[0], list.Kind, list.APIVersion, kind)
	}
	return list.Items
}
