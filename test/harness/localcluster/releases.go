package localcluster

import (
	"fmt"
	"slices"
	"strings"
)

// release is a Kubernetes whose API server and controller manager a cluster can run. What else runs in it is of the
// newest.
type release struct {
	version string // of k8s.io/kubernetes, in the go.mod of the module
	// module is the folder in hack/tools that pins it, and the folder of its binaries; empty for the newest, which is
	// pinned with everything else.
	module string
}

// releases are what Options.Kubernetes may name, the newest first.
var releases = []release{{kubeVersion, ""}, {"v1.36.3", "kube-1.36"}, {"v1.35.4", "kube-1.35"}}

// Releases returns the versions of Kubernetes that a cluster can have, as minor versions, such as 1.36; the newest
// first.
func Releases() []string {
	var minors []string
	for _, r := range releases {
		minors = append(minors, r.minor())
	}
	return minors
}

func (r release) minor() string {
	v := strings.TrimPrefix(r.version, "v")
	return v[:strings.LastIndex(v, ".")]
}

// releaseNamed returns the release of a minor version (1.36) or of the very version (1.36.3, v1.36.3); the newest for
// "".
func releaseNamed(name string) (release, error) {
	if name == "" {
		return releases[0], nil
	}
	plain := strings.TrimPrefix(name, "v")
	i := slices.IndexFunc(releases, func(r release) bool { return plain == r.minor() || "v"+plain == r.version })
	if i < 0 {
		return release{}, fmt.Errorf("choosing the version of Kubernetes: %q is not one of %s", name, strings.Join(Releases(), ", "))
	}
	return releases[i], nil
}

// releaseIn returns the release that a module of hack/tools pins; the newest for a module with other tools.
func releaseIn(module string) release {
	for _, r := range releases {
		if r.module == module {
			return r
		}
	}
	return releases[0]
}

// programs are those that a cluster of this release runs beside the programs of the newest.
func (r release) programs() []program {
	if r.module == "" {
		return nil
	}
	return []program{
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: r.module},
		{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: r.module},
	}
}

// buildFlags stamp the version, without which kubectl and kwokctl cannot parse it. VCS stamping is off: it would make
// every commit a new build, and fails in foreign-owned checkouts. There is nothing else, and both modules have the same
// versions of what they share, so that what is compiled for the control plane serves make build, go vet and go test,
// too.
func (r release) buildFlags() []string {
	_, minor, _ := strings.Cut(r.minor(), ".")
	return []string{
		"-buildvcs=false", "-ldflags",
		"-s -w -X k8s.io/component-base/version.gitVersion=" + r.version +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=" + minor,
	}
}
