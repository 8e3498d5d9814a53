package verifydocs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shown is a link to a manifest on a line of its own, with the text that is shown of it.
var shown = regexp.MustCompile("(?m)^\\[[^]]+\\]\\(([^)]+\\.yaml)\\)\n\n```yaml\n((?s).*?)```$")

// TestDocsShowManifestsAsTheyAre: what a text shows below a link to a manifest is that manifest, which other tests run.
func TestDocsShowManifestsAsTheyAre(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	readmes, err := filepath.Glob(filepath.Join("plugins", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, doc := range slices.Concat(docs, readmes) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range shown.FindAllSubmatch(text, -1) {
			manifest, err := os.ReadFile(filepath.Join(filepath.Dir(doc), string(match[1])))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(manifest), string(match[2])); diff != "" {
				t.Errorf("%s does not show %s as it is (-manifest +text):\n%s", doc, match[1], diff)
			}
			count++
		}
	}
	if count < 4 {
		t.Errorf("%d manifests are found in all: they are not where this test looks", count)
	}
}
