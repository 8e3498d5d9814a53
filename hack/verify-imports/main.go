// Command verify-imports checks that imports run one way. What a package may import follows from its folder:
//
//	apis < pkg/rules, pkg/util < pkg/kube < pkg/ledger, pkg/status < pkg/framework < pkg/admission, pkg/reservations <
//	pkg/planning < pkg/evictions < pkg/controllers/X, plugins/X < pkg/schedulersetup < cmd < test, hack
//
// Neighbours do not import each other: no plugin another one, no controller another one, no owner of state another one.
// Only lockstep-controller imports controllers. The packages of pkg/rules turn values into values: they have no client,
// no scheduler and no log. Nothing but test and hack imports test and hack; tests may import test/helpers. What judges
// the scheduler imports nothing of it, and kubectl-gang is built without it.
//
// No two packages have one name, and no folder has more than 12 folders with packages. Run it at the top of the
// repository.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/lockstep-sh/lockstep/"

// impure is what packages that only turn values into values have no use for, by prefix.
var impure = []string{"k8s.io/kubernetes", "k8s.io/client-go", "k8s.io/klog", "log"}

// helpers is the folder of what helps tests of any package.
const helpers = "test/helpers/"

// judge is the package that decides whether the scheduler did well, and reader the one that decides whether it did what
// is documented: that one knows the types of its API.
const (
	judge  = "test/chaos/invariant"
	reader = "test/histories/judge"
)

// small is the program that is built without heavy packages, so that it is small.
const small = module + "cmd/kubectl-gang"

var heavy = []string{"k8s.io/kubernetes/pkg/scheduler", "sigs.k8s.io/controller-runtime/pkg/manager"}

// runner is lockstep-controller.
const runner = "cmd/controller"

// pkg is what go list prints about a package.
type pkg struct {
	ImportPath, Name                   string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

func main() {
	violations, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	for _, v := range violations {
		fmt.Println(v)
	}
	if len(violations) > 0 {
		os.Exit(1)
	}
}

func run() ([]string, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var violations []string
	all := house{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return append(violations, all.check()...), nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing the list of packages: %w", err)
		}
		violations = append(violations, check(p)...)
		all.add(p)
	}
}

// check returns what is wrong with the imports of p, those of its tests included.
func check(p pkg) []string {
	imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
	slices.Sort(imports)
	var violations []string
	for _, path := range heavy {
		if p.ImportPath == small && slices.Contains(p.Deps, path) {
			violations = append(violations, fmt.Sprintf("%s imports %s, itself or by another: it is to be small", small, path))
		}
	}
	for _, path := range slices.Compact(imports) {
		if path == p.ImportPath { // an external test
			continue
		}
		if strings.HasPrefix(path, module+helpers) && !slices.Contains(p.Imports, path) {
			continue
		}
		if why := forbidden(strings.TrimPrefix(p.ImportPath, module), path); why != "" {
			violations = append(violations, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, why))
		}
	}
	return violations
}

// forbidden returns why the package from, relative to the module, may not import path; "" if it may.
func forbidden(from, path string) string {
	to, ours := strings.CutPrefix(path, module)
	rank, unit := place(from)
	switch {
	case !ours && rank == rules && slices.ContainsFunc(impure, under(path)):
		return "packages in pkg/rules are pure: no scheduler, no client, no log"
	case !ours:
		return ""
	case from == judge || strings.HasPrefix(from, judge+"/"):
		return "what judges the scheduler shares nothing with it"
	case from == reader && !strings.HasPrefix(to, "apis/"):
		return "what judges the scheduler shares nothing with it but the types of its API"
	}
	target, other := place(to)
	switch {
	case rank == unknown || target == unknown:
		return "a folder of pkg has no layer: name it in folders"
	case rank == tests:
		return ""
	case target == tests:
		return "only tests and tools import tests and tools"
	case target == controllers && rank != controllers && from != runner:
		return "only " + runner + " runs controllers"
	case target > rank:
		return to + " stands above " + from
	case target == rank && unit != other && other != shared:
		return "neighbours do not import each other"
	}
	return ""
}

// layer is where a package stands: it may import what stands lower.
type layer int

const (
	unknown layer = iota
	apis
	rules
	kube
	ledgers
	framework
	owners
	planning
	evictions
	controllers
	plugins
	composition
	commands
	tests
)

// folders are the layers of the folders of pkg.
var folders = map[string]layer{
	"rules": rules, "util": rules, "kube": kube, "ledger": ledgers, "status": ledgers, "framework": framework,
	"admission": owners, "reservations": owners, "planning": planning, "evictions": evictions,
	"controllers": controllers, "schedulersetup": composition,
}

// shared is what the neighbours in a folder share.
const shared = "internal"

// place returns the layer of a package, and in layers whose packages do not know each other the name of its own.
func place(path string) (rank layer, unit string) {
	parts := strings.Split(path+"///", "/")
	switch parts[0] {
	case "apis":
		return apis, ""
	case "cmd":
		return commands, ""
	case "plugins":
		return plugins, parts[1]
	case "pkg":
		switch rank := folders[parts[1]]; rank {
		case rules:
			return rules, ""
		case controllers:
			return controllers, parts[2]
		default:
			return rank, parts[1]
		}
	}
	return tests, ""
}

// under returns a function that reports whether path is prefix or below it.
func under(path string) func(prefix string) bool {
	return func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
}
