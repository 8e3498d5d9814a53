package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleasesArePinned: what a release is called is what its module has.
func TestReleasesArePinned(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		data, err := os.ReadFile(filepath.Join(root, "hack", "tools", r.module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if want := "k8s.io/kubernetes " + r.version + "\n"; !strings.Contains(string(data), want) && !strings.Contains(string(data), strings.TrimSuffix(want, "\n")+" ") {
			t.Errorf("go.mod of module %q does not pin %s", r.module, want)
		}
	}
}

func TestReleaseNamed(t *testing.T) {
	for name, want := range map[string]string{
		"": kubeVersion, "1.37": kubeVersion, "1.36": "v1.36.3", "1.36.3": "v1.36.3", "v1.35.4": "v1.35.4",
	} {
		if got, err := releaseNamed(name); err != nil || got.version != want {
			t.Errorf("%q is %s, error %v, want %s", name, got.version, err, want)
		}
	}
	for _, name := range []string{"1.34", "1.36.4", "new"} {
		if _, err := releaseNamed(name); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "1.37, 1.36, 1.35") {
			t.Errorf("%q: error %v, want one that names it and what there is", name, err)
		}
	}
}
