package verifydocs

import (
	"go/ast"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	configv1 "github.com/lockstep-sh/lockstep/apis/config/v1"
	"github.com/lockstep-sh/lockstep/apis/descheduler"
	"github.com/lockstep-sh/lockstep/pkg/schedulersetup"
)

// enabled are the folders of the plugins that a configuration names, with their arguments.
var enabled = map[string]any{
	"binder":          configv1.BoundedBinderArgs{},
	"defragmentation": descheduler.DefragmentationArgs{},
	"fairshare":       configv1.FairShareArgs{},
	"gang":            configv1.GangArgs{},
	"gpushare":        nil,
	"heldcapacity":    nil,
	"preemption":      configv1.GangPreemptionArgs{},
	"queuesort":       nil,
	"reservation":     configv1.ReservationArgs{},
}

// TestReadmesOfPlugins: a plugin that users enable has a README that names its arguments and its extension points, and
// says what they cost.
func TestReadmesOfPlugins(t *testing.T) {
	if here, all := len(enabled), len(schedulersetup.NewSet().Registry)+1; here != all {
		t.Errorf("%d plugins are looked at, and there are %d, with that of the descheduler", here, all)
	}
	for dir, args := range enabled {
		t.Run(dir, func(t *testing.T) {
			readme := texts(t, filepath.Join("plugins", dir))
			if !strings.Contains(readme, "\n## What it costs\n") {
				t.Error("there is no README that says what it costs")
			}
			said := readme
			if dir == "defragmentation" { // its arguments are described where its users look
				page, err := os.ReadFile(filepath.Join("docs", "defragmentation.md"))
				if err != nil {
					t.Fatal(err)
				}
				said = string(page)
			}
			for _, name := range argumentsOf(args) {
				if !strings.Contains(said, "`"+name+"`") {
					t.Errorf("it does not say what %s means", name)
				}
			}
			points := pointsOf(t, filepath.Join("plugins", dir))
			if len(points) == 0 {
				t.Error("no extension points are found: they are not where this test looks")
			}
			for _, point := range points {
				if !regexp.MustCompile(`(?m)^\|[^|]*\b` + point + `\b`).MatchString(readme) {
					t.Errorf("no row of a table says what it does at %s, or what that costs", point)
				}
			}
		})
	}
}

// argumentsOf returns the names of the fields of a plugin's arguments.
func argumentsOf(args any) (names []string) {
	if args == nil {
		return nil
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(args)) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && len(field.Index) == 1 {
			names = append(names, name)
		}
	}
	return names
}

// pluginOf matches the names of interfaces of extension points. Sign has no list in a profile.
var pluginOf = regexp.MustCompile(`^([A-Z][A-Za-z]+)Plugin$`)

// pointsOf returns the extension points that the code of a folder asserts a plugin to implement.
func pointsOf(t *testing.T, dir string) (points []string) {
	t.Helper()
	inspect(t, dir, func(_ string, node ast.Node) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || spec.Names[0].Name != "_" {
			return
		}
		kind, ok := spec.Type.(*ast.SelectorExpr)
		if !ok {
			return
		}
		if found := pluginOf.FindStringSubmatch(kind.Sel.Name); found != nil && found[1] != "Sign" {
			points = append(points, found[1])
		}
	})
	return points
}
