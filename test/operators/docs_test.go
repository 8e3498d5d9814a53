package operators

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// docs is what users read of operators.
var docs = filepath.Join("..", "..", "docs", "works-with.md")

// TestDocsNameWhatIsRun: the table of what is run has a row for every operator, with the versions of its go.mod.
func TestDocsNameWhatIsRun(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(string(text), "\n")
	modules, err := filepath.Glob(filepath.Join("*", "go.mod"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("finding operators: %d modules, error %v", len(modules), err)
	}
	for _, module := range modules {
		dir := filepath.Dir(module)
		row := slices.IndexFunc(rows, func(row string) bool { return strings.Contains(row, "](../test/operators/"+dir+")") })
		if row < 0 {
			t.Errorf("%s has no row for %s", docs, dir)
			continue
		}
		mod, err := read(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range mod.Tool {
			for _, r := range mod.Require {
				if version := strings.TrimPrefix(r.Version, "v"); strings.HasPrefix(tool.Path+"/", r.Path+"/") && !strings.Contains(rows[row], version) {
					t.Errorf("the row of %s does not name the version %s of %s:\n%s", dir, version, r.Path, rows[row])
				}
			}
		}
	}
}

// TestDocsShowWhatIsRun: manifests that are shown are those that are run.
func TestDocsShowWhatIsRun(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"jobset/train.yaml", "kueue/queues.yaml", "kueue/job.yaml", "kueue/config.yaml", "trainer/gang/kustomization.yaml"} {
		manifest, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		for strings.HasPrefix(string(manifest), "#") {
			_, rest, _ := strings.Cut(string(manifest), "\n")
			manifest = []byte(rest)
		}
		if !strings.Contains(string(text), "```yaml\n"+string(manifest)+"```\n") {
			t.Errorf("%s does not show %s as it is", docs, file)
		}
	}
}
