package verifydocs

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"unicode"
)

// named matches the names of constants that are reasons of events and conditions. Constants of a type Reason are, too.
var named = regexp.MustCompile(`^((Migration|Defragmentation|Reservation|Queue|)Reason|[Ee]vent)[A-Z]`)

// foreign are the reasons in the tables that are Kubernetes' own.
var foreign = []string{"SchedulerError"}

// described are the texts whose tables together have all reasons: messages.md, and those that it links for other
// objects.
var described = []string{
	"docs/messages.md", "docs/defragmentation.md", "docs/reservations.md", "plugins/fairshare/README.md", "pkg/controllers/queuestatus/README.md",
}

// TestReasonsAreInTables: the tables have a row for every reason that the code has, and for no other.
func TestReasonsAreInTables(t *testing.T) {
	var written []string
	for _, file := range described {
		text, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|").FindAllStringSubmatch(string(text), -1) {
			written = append(written, row[1])
		}
	}
	reasons := slices.Clone(foreign)
	for _, root := range roots {
		for _, dir := range folders(t, root) {
			for _, name := range reasonsOf(t, dir) {
				if unicode.IsUpper(rune(name[0])) { // others are labels of metrics
					reasons = append(reasons, name)
				}
			}
		}
	}
	if len(reasons) < 60 {
		t.Errorf("%d reasons are found in all: they are not where this test looks", len(reasons))
	}
	for _, name := range reasons {
		if !slices.Contains(written, name) {
			t.Errorf("no table has a row for %s", name)
		}
	}
	for _, name := range written {
		if !slices.Contains(reasons, name) {
			t.Errorf("a table has a row for %s, which is no reason", name)
		}
	}
}

// reasonsOf returns the values of the constants of a folder that are reasons.
func reasonsOf(t *testing.T, dir string) (reasons []string) {
	t.Helper()
	inspect(t, dir, func(_ string, node ast.Node) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return
		}
		for i, constant := range spec.Names {
			if i >= len(spec.Values) || !named.MatchString(constant.Name) && !isNamed(spec.Type, "Reason") {
				continue
			}
			if value := text(spec.Values[i]); value != "" {
				reasons = append(reasons, value)
			}
		}
	})
	return reasons
}
