// Package operators runs lockstep-scheduler beside the operators that make the pods of training jobs, as they come:
// each is built from a module of its own, since they need different versions of the same libraries.
package operators

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

var operators = flag.Bool("operators", false, "build the operators, which takes minutes each the first time, and run their scenarios")

// TestOperators runs the scenarios of every operator; -run TestOperators/mpi runs those of one.
func TestOperators(t *testing.T) {
	if !*operators {
		t.Skip("not asked for by -operators")
	}
	modules, err := filepath.Glob(filepath.Join("*", "go.mod"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("finding operators: %d modules, error %v", len(modules), err)
	}
	root, err := prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		t.Run(filepath.Dir(module), func(t *testing.T) {
			test(t, root, filepath.Dir(module))
		})
	}
}

// prepare builds what all operators run on. root is the top of the repository.
func prepare(ctx context.Context) (root string, err error) {
	if root, err = localcluster.Root(); err != nil {
		return "", err
	}
	if err := localcluster.BuildCommands(ctx); err != nil {
		return "", err
	}
	return root, localcluster.Build(ctx, os.Stderr, "")
}

// test runs the scenarios in the folder of an operator, one after the other: some operators listen on a fixed port.
func test(t *testing.T, root, dir string) {
	runner, err := runnerOf(t, root, dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.scenario.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("finding scenarios: %d files, error %v", len(files), err)
	}
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		s.Name = "operator-" + strings.TrimSuffix(s.Name, ".scenario")
		t.Run(s.Name, func(t *testing.T) {
			if report := runner.Run(t.Context(), s); report.Failed() {
				t.Error(report)
			} else {
				t.Log(report)
			}
		})
	}
}

// runnerOf makes the runner of an operator, with programs, certificates and control planes of its own: CRDs stay in a
// control plane, and two operators may have different ones of the same name, such as those of MPIJobs.
func runnerOf(t *testing.T, root, dir string) (*scenario.Runner, error) {
	built, err := build(t.Context(), dir, t.TempDir())
	if err != nil {
		return nil, err
	}
	here, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	certs := t.TempDir()
	if err := certify(certs); err != nil {
		return nil, err
	}
	fleet, err := scenario.NewFleet()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := fleet.Close(ctx); err != nil {
			t.Errorf("taking down the control planes: %v", err)
		}
	})
	programs, variables := map[string]string{}, map[string]string{"HERE": here, "CERTS": certs}
	for _, o := range built {
		programs[o.name] = o.binary
		variables[strings.ToUpper(o.name)] = o.source
	}
	return &scenario.Runner{
		Fleet: fleet, Scheduler: filepath.Join(root, "bin", "lockstep-scheduler"), Controller: filepath.Join(root, "bin", "lockstep-controller"),
		Programs: programs, Variables: variables,
	}, nil
}

// certify writes what a webhook on this machine is served with, tls.crt and tls.key.
func certify(dir string) error {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	for name, data := range map[string][]byte{"tls.crt": crt, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("writing a certificate: %w", err)
		}
	}
	return nil
}

// operator is a program that a module builds.
type operator struct {
	// name is the last part of its module's path, without a major version.
	name string
	// source is the folder of its module, with manifests.
	source, binary string
}

// build builds the tools of a module.
func build(ctx context.Context, dir, into string) ([]operator, error) {
	module, err := read(ctx, dir)
	if err != nil {
		return nil, err
	}
	var built []operator
	for _, tool := range module.Tool {
		out, err := run(ctx, dir, "go", "list", "-f", "{{.Module.Path}} {{.Module.Dir}}", tool.Path)
		if err != nil {
			return nil, err
		}
		path, source, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		o := operator{name: nameOf(path), source: source}
		o.binary = filepath.Join(into, o.name)
		if _, err := run(ctx, dir, "go", "build", "-o", o.binary, tool.Path); err != nil {
			return nil, err
		}
		built = append(built, o)
	}
	return built, nil
}

// goMod is what a go.mod says.
type goMod struct {
	Tool    []struct{ Path string }
	Require []struct{ Path, Version string }
}

func read(ctx context.Context, dir string) (goMod, error) {
	out, err := run(ctx, dir, "go", "mod", "edit", "-json")
	if err != nil {
		return goMod{}, err
	}
	var module goMod
	if err := json.Unmarshal(out, &module); err != nil {
		return goMod{}, fmt.Errorf("reading go.mod of %s: %w", dir, err)
	}
	return module, nil
}

// nameOf returns the last part of a module's path that is no version, with _ for -, as in a variable.
func nameOf(module string) string {
	parts := strings.Split(module, "/")
	name := parts[len(parts)-1]
	if len(parts) > 1 && len(name) == 2 && name[0] == 'v' {
		name = parts[len(parts)-2]
	}
	return strings.ReplaceAll(name, "-", "_")
}

func run(ctx context.Context, dir, command string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = dir
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s in %s: %w\n%s", command, strings.Join(args, " "), dir, err, problems.String())
	}
	return out, nil
}
