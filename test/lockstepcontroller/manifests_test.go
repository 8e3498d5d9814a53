package lockstepcontroller_test

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	_ "github.com/lockstep-sh/lockstep/apis/config/scheme"
	lockstep "github.com/lockstep-sh/lockstep/pkg/schedulersetup"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestManifests: every manifest can be applied, and every sample makes pods.
func TestManifests(t *testing.T) {
	t.Parallel()
	c := start(t, manifest(t, "crds"), manifest(t, "base"))
	checkPermissions(t, c, ofBase)
	if err := c.Apply(testContext(t), manifest(t, "descheduler"), manifest(t, "descheduler-cron")); err != nil {
		t.Fatal(err)
	}
	checkPermissions(t, c, ofMoves)
	for _, w := range []struct{ resource, template string }{
		{"deployment/lockstep-scheduler", ".spec.template.spec"},
		{"deployment/lockstep-controller", ".spec.template.spec"},
		{"deployment/lockstep-descheduler", ".spec.template.spec"},
		{"cronjob/lockstep-descheduler", ".spec.jobTemplate.spec.template.spec"},
	} {
		out, err := c.Kubectl(testContext(t), "get", w.resource, "--namespace", system,
			"--output", fmt.Sprintf("jsonpath={%[1]s.containers[*].image} {%[1]s.volumes[*].configMap.name}{%[1]s.volumes[*].projected.sources[*].configMap.name}", w.template))
		if err != nil {
			t.Fatal(err)
		}
		image, config, _ := strings.Cut(out, " ")
		if image != path.Base(w.resource)+":latest" {
			t.Errorf("image of %s: %q", w.resource, image)
		}
		for _, config := range strings.Fields(config) {
			if _, err := c.Kubectl(testContext(t), "get", "configmap", config, "--namespace", system); err != nil {
				t.Errorf("the configuration of %s: %v", w.resource, err)
			}
		}
	}
	samples, err := filepath.Glob(manifest(t, "samples", "*.yaml"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("samples: %d, %v", len(samples), err)
	}
	for _, sample := range samples {
		if err := c.Apply(testContext(t), sample); err != nil {
			t.Error(err)
		}
	}
	await.NoError(t, "all samples have pods", func() error {
		out, err := c.Kubectl(testContext(t), "get", "jobs", "--all-namespaces",
			"--output", `jsonpath={range .items[*]}{.metadata.name}={.spec.parallelism}/{.status.active} {end}`)
		if err != nil {
			return err
		}
		for _, job := range strings.Fields(out) {
			name, counts, _ := strings.Cut(job, "=")
			if want, got, _ := strings.Cut(counts, "/"); want != got {
				return fmt.Errorf("job %s has %q of %q pods", name, got, want)
			}
		}
		return nil
	})
}

// access is what an account may do, or not.
type access = authorizationv1.ResourceAttributes

// permission is whether an account may do something.
type permission struct {
	account string
	allowed bool
	access  access
}

const scheduler, controller, descheduler = "lockstep-scheduler", serviceAccount, "lockstep-descheduler"

// ofBase are what the binaries do, and some of what they must not; ofMoves what comes with the descheduler.
var (
	ofBase = []permission{
		{scheduler, true, access{Verb: "create", Resource: "pods", Subresource: "binding"}},
		{scheduler, true, access{Verb: "patch", Resource: "pods"}},
		{scheduler, true, access{Verb: "delete", Resource: "pods"}},
		{scheduler, true, access{Verb: "patch", Resource: "pods", Subresource: "status"}},
		{scheduler, true, access{Verb: "create", Resource: "events"}},
		{scheduler, true, access{Verb: "patch", Group: "events.k8s.io", Resource: "events"}},
		{scheduler, true, access{Verb: "watch", Resource: "namespaces"}},
		{scheduler, true, access{Verb: "watch", Group: "scheduling.x-k8s.io", Resource: "podgroups"}},
		{scheduler, true, access{Verb: "patch", Group: "scheduling.x-k8s.io", Resource: "podgroups", Subresource: "status"}},
		{scheduler, true, access{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: system}},
		{scheduler, true, access{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: scheduler, Namespace: system}},
		{scheduler, true, access{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: "kube-scheduler", Namespace: system}},
		{scheduler, true, access{Verb: "get", Resource: "configmaps", Name: "extension-apiserver-authentication", Namespace: system}},
		{scheduler, true, access{Verb: "update", Resource: "persistentvolumeclaims"}},
		{scheduler, true, access{Verb: "patch", Group: "scheduling.x-k8s.io", Resource: "podgroups"}},
		{scheduler, false, access{Verb: "delete", Group: "scheduling.x-k8s.io", Resource: "podgroups"}},
		{scheduler, false, access{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: controller, Namespace: system}},
		{scheduler, false, access{Verb: "create", Resource: "pods"}},
		{scheduler, false, access{Verb: "get", Resource: "secrets"}},
		{scheduler, true, access{Verb: "watch", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{scheduler, true, access{Verb: "update", Group: "scheduling.lockstep.dev", Resource: "reservations", Subresource: "status"}},
		{scheduler, false, access{Verb: "update", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{scheduler, false, access{Verb: "delete", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{controller, true, access{Verb: "watch", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{controller, true, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "reservations", Subresource: "status"}},
		{controller, true, access{Verb: "delete", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{controller, true, access{Verb: "create", Group: "events.k8s.io", Resource: "events", Namespace: "default"}},
		{controller, true, access{Verb: "create", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{controller, true, access{Verb: "watch", Group: "scheduling.lockstep.dev", Resource: "podmigrations"}},
		{controller, true, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "podmigrations"}},
		{controller, true, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "defragmentationplans"}},
		{controller, true, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{controller, true, access{Verb: "update", Group: "scheduling.lockstep.dev", Resource: "defragmentationplans", Subresource: "status"}},
		{controller, false, access{Verb: "create", Resource: "pods", Subresource: "eviction"}},
		{controller, false, access{Verb: "update", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
		{controller, false, access{Verb: "patch", Resource: "nodes"}},
		{controller, true, access{Verb: "watch", Resource: "nodes"}},
		{controller, true, access{Verb: "watch", Group: "scheduling.lockstep.dev", Resource: "queues"}},
		{controller, true, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "queues", Subresource: "status"}},
		{controller, false, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "queues"}},
		{controller, false, access{Verb: "patch", Resource: "pods"}},
		{controller, false, access{Verb: "update", Group: "scheduling.x-k8s.io", Resource: "podgroups"}},
		{controller, false, access{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Name: scheduler, Namespace: system}},
	}
	ofMoves = []permission{
		{controller, true, access{Verb: "create", Resource: "pods", Subresource: "eviction"}},
		{controller, true, access{Verb: "patch", Group: "scheduling.x-k8s.io", Resource: "podgroups"}},
		{descheduler, true, access{Verb: "create", Group: "scheduling.lockstep.dev", Resource: "defragmentationplans"}},
		{descheduler, true, access{Verb: "patch", Group: "scheduling.lockstep.dev", Resource: "defragmentationplans", Subresource: "status"}},
		{descheduler, true, access{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: descheduler, Namespace: system}},
		{descheduler, false, access{Verb: "create", Resource: "pods", Subresource: "eviction"}},
		{descheduler, false, access{Verb: "update", Group: "scheduling.lockstep.dev", Resource: "defragmentationplans"}},
		{descheduler, false, access{Verb: "create", Group: "scheduling.lockstep.dev", Resource: "podmigrations"}},
		{descheduler, false, access{Verb: "create", Group: "scheduling.lockstep.dev", Resource: "reservations"}},
	}
)

// checkPermissions checks what accounts may do.
func checkPermissions(t *testing.T, c *localcluster.Cluster, list []permission) {
	t.Helper()
	for _, tc := range list {
		review, err := c.Clientset().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + system + ":" + tc.account, ResourceAttributes: &tc.access,
				Groups: []string{"system:serviceaccounts", "system:authenticated"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != tc.allowed {
			t.Errorf("%s, %+v: allowed %t, want %t", tc.account, tc.access, review.Status.Allowed, tc.allowed)
		}
	}
}

// TestSchedulerConfigurations: the scheduler configurations pass the strict decoding of kube-scheduler,
// are completed with the one queue-sort plugin that a process may have, and enable what the scheduler enables without
// a configuration.
func TestSchedulerConfigurations(t *testing.T) {
	files, err := filepath.Glob(manifest(t, "config", "*-scheduler.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("configurations: %v, %v; want 2", files, err)
	}
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	var builtIn *config.Plugins
	for _, file := range append([]string{filepath.Join(root, "cmd", "scheduler", "app", "default.yaml")}, files...) {
		logger, _ := ktesting.NewTestContext(t)
		loaded, err := options.LoadConfigFromFile(logger, file)
		if err != nil {
			t.Errorf("loading %s: %v", filepath.Base(file), err)
			continue
		}
		lockstep.Complete(loaded.Profiles)
		for _, profile := range loaded.Profiles {
			enabled := profile.Plugins.QueueSort.Enabled
			if len(enabled) != 1 || enabled[0].Name != "GangQueueSort" {
				t.Errorf("%s, profile %s: queue sort by %v", filepath.Base(file), profile.SchedulerName, enabled)
			}
			if profile.SchedulerName != "lockstep-scheduler" {
				continue
			}
			if builtIn == nil {
				builtIn = profile.Plugins
			}
			if diff := cmp.Diff(builtIn, profile.Plugins); diff != "" {
				t.Errorf("%s: plugins (-built in +there):\n%s", filepath.Base(file), diff)
			}
		}
	}
}
