package main

import "testing"

func TestForbidden(t *testing.T) {
	cases := map[string]struct {
		from, to string
		bad      bool
	}{
		"a plugin uses a pure package":             {"plugins/gang", module + "pkg/rules/gangstate", false},
		"a plugin uses a library":                  {"plugins/preemption", module + "pkg/planning/victim", false},
		"a plugin uses its own sub-package":        {"plugins/gang", module + "plugins/gang/metrics", false},
		"a plugin uses another plugin":             {"plugins/gang", module + "plugins/fairshare", true},
		"a sub-package uses another plugin":        {"plugins/gang/metrics", module + "plugins/fairshare", true},
		"a plugin uses the scheduler":              {"plugins/gang", "k8s.io/kubernetes/pkg/scheduler", false},
		"a plugin uses a command":                  {"plugins/gang", module + "cmd/scheduler", true},
		"a plugin uses test code":                  {"plugins/gang", module + "test/harness/localcluster", true},
		"a plugin uses a controller":               {"plugins/gang", module + "pkg/controllers/podgroup", true},
		"kubectl uses a controller":                {"cmd/kubectl-gang-forecast/workloadfile", module + "pkg/controllers/podgroup", true},
		"lockstep-controller runs a controller":    {"cmd/controller", module + "pkg/controllers/podgroup", false},
		"a controller uses a plugin":               {"pkg/controllers/podgroup", module + "plugins/gang", true},
		"a controller uses another controller":     {"pkg/controllers/workloads", module + "pkg/controllers/podgroup", true},
		"a controller uses what controllers share": {"pkg/controllers/workloads", module + "pkg/controllers/internal/moves", false},
		"the composition uses a plugin":            {"pkg/schedulersetup", module + "plugins/gang", false},
		"a plugin uses the composition":            {"plugins/gang", module + "pkg/schedulersetup", true},
		"a plugin uses what plugins share":         {"plugins/gang", module + "pkg/planning/extensionpoints", false},
		"apis use the composition":                 {"apis/config", module + "pkg/schedulersetup", true},
		"a library uses a library":                 {"pkg/planning/victim", module + "pkg/planning/whatif", false},
		"an owner uses the ledger":                 {"pkg/admission/registry", module + "pkg/ledger", false},
		"an owner uses another owner":              {"pkg/admission/registry", module + "pkg/reservations", true},
		"an owner plans":                           {"pkg/reservations", module + "pkg/planning/planner", true},
		"a planner uses the framework":             {"pkg/planning/planner", module + "pkg/framework/cacheevents", false},
		"the framework plans":                      {"pkg/framework/watches", module + "pkg/planning/planner", true},
		"a folder that has no layer":               {"pkg/newfolder", module + "pkg/rules/resource", true},
		"a library uses a plugin":                  {"pkg/planning/victim", module + "plugins/gang", true},
		"a folder of pkg without a layer":          {"pkg/new/thing", module + "pkg/rules/resource", true},
		"a pure package uses a pure package":       {"pkg/rules/gangstate", module + "pkg/rules/resource", false},
		"a pure package uses API types":            {"pkg/rules/gangstate", "k8s.io/api/core/v1", false},
		"a pure package uses a plugin":             {"pkg/rules/gangstate", module + "plugins/gang", true},
		"a pure package uses a library":            {"pkg/rules/gangstate", module + "pkg/planning/victim", true},
		"a pure package uses a client":             {"pkg/rules/gangstate", "k8s.io/client-go/kubernetes", true},
		"a pure package uses the scheduler":        {"pkg/rules/gangstate", "k8s.io/kubernetes/pkg/scheduler", true},
		"a pure package logs":                      {"pkg/rules/gangstate", "k8s.io/klog/v2", true},
		"a pure package logs with the library":     {"pkg/rules/gangstate", "log/slog", true},
		"a pure package counts with logarithms":    {"pkg/rules/gangstate", "logarithm.example/log", false},
		"apis use apis":                            {"apis/config/v1", module + "apis/config", false},
		"apis use a plugin":                        {"apis/config", module + "plugins/gang", true},
		"a command uses a plugin":                  {"cmd/scheduler", module + "plugins/gang", false},
		"a command uses its own sub-package":       {"cmd/scheduler", module + "cmd/scheduler/app", false},
		"an end-to-end test uses a command":        {"test/e2e", module + "cmd/scheduler", false},
		"an end-to-end test uses the test folder":  {"test/e2e", module + "test/harness/localcluster", false},
		"a judge uses API types":                   {"test/chaos/invariant", "k8s.io/api/core/v1", false},
		"a judge uses what it judges":              {"test/chaos/invariant", module + "pkg/rules/gangstate", true},
		"a judge uses keys of what it judges":      {"test/chaos/invariant", module + "apis/scheduling/v1alpha1", true},
		"a run of faults uses the judge":           {"test/chaos", module + "test/chaos/invariant", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if why := forbidden(c.from, c.to); (why != "") != c.bad {
				t.Errorf("%s imports %s: %q, want forbidden %t", c.from, c.to, why, c.bad)
			}
		})
	}
}

// TestHelpers: packages that help tests are for tests.
func TestHelpers(t *testing.T) {
	helper := []string{module + helpers + "await"}
	for name, c := range map[string]struct {
		pkg pkg
		bad int
	}{
		"a test":                              {pkg{TestImports: helper}, 0},
		"an external test":                    {pkg{XTestImports: helper}, 0},
		"what is tested":                      {pkg{Imports: helper}, 1},
		"what is tested, and its test":        {pkg{Imports: helper, TestImports: helper}, 1},
		"a test that wants more of the tests": {pkg{TestImports: []string{module + "test/harness/localcluster"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.pkg.ImportPath = module + "plugins/gang"
			if got := check(c.pkg); len(got) != c.bad {
				t.Errorf("violations %q, want %d", got, c.bad)
			}
		})
	}
}

// TestSmall: kubectl-gang is built without the scheduler, whatever imports it.
func TestSmall(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		deps []string
		bad  int
	}{
		"without it":                       {small, []string{heavy[0] + "/apis/config"}, 0},
		"with all":                         {small, heavy, len(heavy)},
		"the program that is there for it": {small + "-forecast", heavy, 0},
	} {
		if got := check(pkg{ImportPath: c.path, Deps: c.deps}); len(got) != c.bad {
			t.Errorf("%s: violations %q, want %d", name, got, c.bad)
		}
	}
}
