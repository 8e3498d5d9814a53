// Command verify-imports checks that imports run one way:
//
//	apis <- plugins/internal (pure) <- libraries <- plugins/X <- plugins (puts them together) <- cmd
//
// No plugin imports another one, pure packages have no client, no scheduler and no log, and no package but test and hack imports
// test and hack; tests may import helpers. What judges the scheduler imports nothing of it. Run it at the top of the repository.
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

// libraries are the packages below plugins/ that are no plugins, and that plugins may share: algorithms (victim, whatif), the state
// of a scheduler process (gangs, holds, order, leading, reservepods), what it decided (decisions), what its cache has taken in
// (cacheevents) and its plugins have (watches), how kinds of objects are waited for (crd), what the API server makes of pods
// (labelkeys), and what users read (podstatus, event).
var libraries = []string{"binding", "cacheevents", "crd", "decisions", "devices", "event", "eviction", "extension", "gangpoint", "gangs", "holds", "labelkeys", "leading", "order", "planner", "podstatus", "reservations", "reservepods", "victim", "watches", "whatif"}

// views are the packages below plugins/ that turn what there is into rows and words for people: they may ask any plugin, and no
// plugin asks them.
var views = []string{"overview"}

// impure is what packages that only turn values into values have no use for, by prefix.
var impure = []string{"k8s.io/kubernetes", "k8s.io/client-go", "k8s.io/klog", "log"}

// helpers are the packages below test/ that help tests of any package.
var helpers = []string{"test/await", "test/dra", "test/idle"}

// judge is the package that decides whether the scheduler did well.
const judge = "test/chaos/invariant"

// pkg is what go list prints about a package.
type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
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
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var violations []string
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return violations, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing the list of packages: %w", err)
		}
		violations = append(violations, check(p)...)
	}
}

// check returns what is wrong with the imports of p, those of its tests included.
func check(p pkg) []string {
	imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
	slices.Sort(imports)
	var violations []string
	for _, path := range slices.Compact(imports) {
		if path == p.ImportPath { // an external test
			continue
		}
		if slices.Contains(helpers, strings.TrimPrefix(path, module)) && !slices.Contains(p.Imports, path) {
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
	layer := top(from)
	switch {
	case !ours && strings.HasPrefix(from, "plugins/internal/") && slices.ContainsFunc(impure, under(path)):
		return "packages in plugins/internal are pure: no scheduler, no client, no log"
	case ours && (from == judge || strings.HasPrefix(from, judge+"/")):
		return "what judges the scheduler shares nothing with it"
	case !ours, layer == "test", layer == "hack":
		return ""
	case top(to) == "test", top(to) == "hack":
		return "only tests and tools import tests and tools"
	case top(to) == "cmd" && layer != "cmd":
		return "nothing imports a command"
	case layer == "apis" && top(to) != "apis":
		return "apis stand below everything else"
	case layer == "plugins" && top(to) == "plugins":
		return forbiddenPlugin(from, to)
	}
	return ""
}

// forbiddenPlugin judges an import from below plugins/ to below plugins/.
func forbiddenPlugin(from, to string) string {
	source, target := second(from), second(to)
	switch {
	case source == target, source == "", target == "internal":
		return ""
	case target == "":
		return "the package that puts the plugins together stands above them"
	case source == "internal":
		return "packages in plugins/internal stand below the plugins"
	case slices.Contains(libraries, target), slices.Contains(views, source):
		return ""
	case slices.Contains(libraries, source):
		return "libraries stand below the plugins"
	}
	return "no plugin imports another one"
}

// top returns the first element of a path: the layer.
func top(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// second returns the second element of a path: the plugin.
func second(path string) string {
	_, rest, _ := strings.Cut(path, "/")
	return top(rest)
}

// under returns a function that reports whether path is prefix or below it.
func under(path string) func(prefix string) bool {
	return func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
}
