// Package e2e runs the scenario files against the binaries of this repository.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

const (
	// downTimeout bounds taking down the control planes at the end.
	downTimeout = time.Minute

	// atOnce is how many scenarios run at a time unless -parallel says otherwise: they mostly wait.
	atOnce = "6"

	// controlWithin is how long the stock scheduler gets for what it will not do.
	controlWithin = 4 * time.Second
)

var runner *scenario.Runner

var control = flag.Bool("control", false, "run the scenarios with the stock scheduler, which must be reported to break every one of them")

var kubernetes = flag.String("kubernetes", "", "run the scenarios on an API server of this version, such as 1.36")

func TestMain(m *testing.M) {
	// Before the flags of the command line, which win.
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if os.Getenv(spinVariable) != "" {
		spin()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if *kubelets {
		runner.Slower = kubeletsSlower
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if err := runner.Fleet.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if all, err := filepath.Glob(scenarioPattern); *roles || err == nil && len(ran) == len(all) && !*control {
		if err := checkRoles(runner.Fleet.Requested()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// ran are the scenarios that ran.
var ran = map[string]bool{}

// scenarioPattern matches the files of all scenarios.
var scenarioPattern = filepath.Join("scenarios", "*", "*.yaml")

// setUp builds the binaries, so that what is tested is the code as it is now.
func setUp() error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	if err := localcluster.BuildCommands(context.Background()); err != nil {
		return err
	}
	tools := append(localcluster.Options{Kubelets: *kubelets}.Tools(), "kube-scheduler")
	if err := localcluster.Build(context.Background(), os.Stderr, *kubernetes, tools...); err != nil {
		return err
	}
	stock, err := localcluster.Binary("kube-scheduler")
	if err != nil {
		return err
	}
	// The community's manifests; commands of a scenario have a home of their own, without modules.
	plugins, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins").Output()
	if err != nil {
		return fmt.Errorf("finding scheduler-plugins: %w", err)
	}
	fleet, err := scenario.NewFleet()
	if err != nil {
		return err
	}
	fleet.Kubernetes, fleet.Kubelets = *kubernetes, *kubelets
	runner = &scenario.Runner{
		Fleet:      fleet,
		Scheduler:  filepath.Join(root, "bin", "lockstep-scheduler"),
		Controller: filepath.Join(root, "bin", "lockstep-controller"),
		Programs:   map[string]string{"kube-scheduler": stock},
		Variables:  map[string]string{"SCHEDULER_PLUGINS": strings.TrimSpace(string(plugins))},
	}
	return nil
}

// scenarioFiles lists the files in the folders of scenarios/.
func scenarioFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(scenarioPattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("finding scenarios: %d files, error %v", len(files), err)
	}
	return files
}

// testName is the name of a scenario's subtests: its folder and its name, such as gangs/a-member-leaves-its-gang.
func testName(file string) string {
	return filepath.Base(filepath.Dir(file)) + "/" + strings.TrimSuffix(filepath.Base(file), ".yaml")
}

// TestScenarioNames checks that each scenario is in a folder, and has a name of its own, in lower case. A name is that
// of a folder of .local/scenarios, too.
func TestScenarioNames(t *testing.T) {
	name := regexp.MustCompile(`^scenarios/[a-z-]+/([a-z0-9-]+)\.yaml$`)
	folders := map[string]string{}
	err := filepath.WalkDir("scenarios", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		match := name.FindStringSubmatch(filepath.ToSlash(file))
		if match == nil {
			t.Errorf("%s is not named scenarios/folder/what-happens.yaml, in lower case", file)
		} else if other := folders[match[1]]; other != "" {
			t.Errorf("%s has the name of one in %s", file, other)
		} else {
			folders[match[1]] = filepath.Dir(file)
		}
		return nil
	})
	if err != nil || len(folders) == 0 {
		t.Errorf("%d scenarios, error %v", len(folders), err)
	}
}

// TestScenarios runs the scenarios that TestBusy does not run. -run TestScenarios/topology runs a folder, and
// TestScenarios/topology/the-tightest, or TestScenarios//the-tightest, one of it.
func TestScenarios(t *testing.T) {
	files := scenarioFiles(t)
	for _, file := range files {
		if !runsBusy(files, file) {
			runScenario(t, runner, file)
		}
	}
}

// runScenario runs one as a subtest, beside others.
func runScenario(t *testing.T, runner *scenario.Runner, file string) {
	t.Run(testName(file), func(t *testing.T) {
		ran[file] = true
		t.Parallel()
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		want := !*control || useStock(s)
		switch report := runner.Run(t.Context(), s); {
		case report.Failed() && want:
			t.Error(report)
		case !report.Failed() && !want:
			t.Errorf("scenario %s holds with the stock scheduler: it shows nothing", s.Name)
		case want:
			t.Log(report)
		default:
			t.Logf("in %s\n%s", report.Step, report.Failures[0])
		}
	})
}

// useStock makes a scenario run with the stock scheduler. It reports whether the scenario still has
// to hold, since all it asks for is to be like that one.
func useStock(s *scenario.Scenario) (holds bool) {
	s.Scheduler.Stock = true
	for _, step := range s.Steps {
		if step.Expect != nil {
			step.Expect.Within.Duration = controlWithin
			holds = holds || len(step.Expect.SameNodesAsStock) > 0
		}
	}
	return holds
}
