package crdfilter

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestInstalled: no CRD takes a quantity that clients in Go cannot read, or that takes them minutes; what users write
// is taken.
func TestInstalled(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "manifests", "crds", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("finding CRDs: %q, %v", files, err)
	}
	found := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := struct {
			Spec struct {
				Versions []struct {
					Schema map[string]any `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}{}
		if err := yaml.Unmarshal(data, &crd); err != nil || len(crd.Spec.Versions) != 1 {
			t.Fatalf("%s: %d versions, %v", file, len(crd.Spec.Versions), err)
		}
		Walk(crd.Spec.Versions[0].Schema["openAPIV3Schema"], func(schema map[string]any) {
			if !IsQuantity(schema) {
				return
			}
			found++
			pattern := regexp.MustCompile(schema["pattern"].(string))
			for _, text := range []string{"1e1.5", "1e-10000000", "1e10000000", "12345678901234567890e1000000", strings.Repeat("9", 1000), "0." + strings.Repeat("0", 1000)} {
				if pattern.MatchString(text) {
					t.Errorf("%s takes %.40s", filepath.Base(file), text)
				}
			}
			for _, text := range []string{"0", "1", "500m", "1.5Gi", "100k", "1e9", "1e-3"} {
				if !pattern.MatchString(text) {
					t.Errorf("%s refuses %s", filepath.Base(file), text)
				}
			}
		})
	}
	if found < 20 {
		t.Errorf("there are %d quantities: the test says nothing", found)
	}
}
