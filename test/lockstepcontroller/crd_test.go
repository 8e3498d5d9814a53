package lockstepcontroller_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// communityCRD returns the one that scheduler-plugins installs: no status.conditions.
func communityCRD(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins").Output()
	if err != nil {
		t.Fatalf("finding the community's CRD: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "bases", crd)
}

// patches returns the number of patches of PodGroups that the API server was asked for,
// those that changed nothing included.
func patches(t *testing.T, c *localcluster.Cluster) int {
	t.Helper()
	data, err := c.Clientset().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("reading the metrics of the API server: %v", err)
	}
	sum := 0
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if strings.HasPrefix(name, "apiserver_request_total{") && strings.Contains(name, `resource="podgroups"`) && strings.Contains(name, `verb="PATCH"`) {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("reading the metrics of the API server: %v", err)
			}
			sum += n
		}
	}
	return sum
}

// TestMissingCRD: the controller waits for the CRD, and works once it is there.
func TestMissingCRD(t *testing.T) {
	t.Parallel()
	c := start(t)
	controller := run(t, c, "controller")
	const line = `Waiting for a CRD: the API server does not serve its kind" kind="scheduling.x-k8s.io/v1alpha1, Kind=PodGroup"`
	await.NoError(t, "the log says that it waits", func() error { return contains(controller.log(t), line) })
	time.Sleep(2 * quiet)
	if err := controller.Err(); err != nil {
		t.Fatalf("the controller ended: %v", err)
	}
	if log := controller.log(t); strings.Count(log, line) != 1 || strings.Contains(log, "err=") {
		t.Errorf("want the line %q once and no errors; log:\n%s", line, log)
	}
	if err := c.Apply(testContext(t), manifest(t, "crds", crd)); err != nil {
		t.Fatal(err)
	}
	n := newNamespace(t, c, "late")
	g := n.createGroup(2)
	n.create(2, byLabel)
	n.bind(names(2)...)
	g.wait("Running", 2, 0, 0, bound)
}

// TestCommunityCRD: on a CRD without conditions everything else works, conditions are not
// tried again and again, and a later replacement of the CRD is noticed.
func TestCommunityCRD(t *testing.T) {
	t.Parallel()
	c := start(t, communityCRD(t))
	controller := run(t, c, "controller")
	n := newNamespace(t, c, "community")
	g := n.createGroup(3)
	g.wait("Pending", 0, 0, 0, "")
	n.create(2, byLabel)
	g.stays() // only a message would have changed
	if got := patches(t, c); got != 1 {
		t.Errorf("%d writes for a gang that is incomplete, want 1", got)
	}
	n.createPod(member("train-2", byLabel))
	g.wait("PreScheduling", 0, 0, 0, "")
	n.bind(names(3)...)
	g.wait("Running", 3, 0, 0, "")
	g.stays()
	const line = "PodGroups of this cluster have no status.conditions"
	if log := controller.log(t); strings.Count(log, line) != 1 || strings.Contains(log, "unknown field") {
		t.Errorf("want the line %q once and no warnings; log:\n%s", line, log)
	}

	if err := c.Apply(testContext(t), manifest(t, "crds", crd)); err != nil {
		t.Fatal(err)
	}
	n.kubectl("delete", "pod", "train-2", "--force", "--grace-period=0")
	// Asked for: a watch from before may still leave out what the old CRD did not have.
	await.NoError(t, "there is a condition", func() error {
		if s := g.get(); s.Phase != "Unknown" || s.scheduled().Reason != incomplete {
			return fmt.Errorf("it has %s", s)
		}
		return nil
	})
}
