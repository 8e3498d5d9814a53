package install

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// release is the namespace of the release.
const release = "gangs"

// TestOnAnAPIServer installs the chart, as users do, and then makes the API server check everything that can
// be installed. Samples are applied elsewhere: test/lockstepcontroller.
func TestOnAnAPIServer(t *testing.T) {
	t.Parallel()
	if err := localcluster.BuildTools(t.Context(), t.Output(), "helm"); err != nil {
		t.Fatal(err)
	}
	c := localcluster.Run(t, localcluster.Options{WithoutKwok: true, WithoutControllerManager: true})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	t.Run("the life of a release", func(t *testing.T) { lifeOfARelease(ctx, t, c) })
	t.Run("all is accepted", func(t *testing.T) { allIsAccepted(ctx, t, c) })
	t.Run("unknown fields are refused", func(t *testing.T) {
		bad := strings.Replace(kustomize(t, "base"), "serviceAccountName:", "serviceAcountName:", 1)
		if err := check(ctx, t, c, bad); err == nil || !strings.Contains(err.Error(), "serviceAcountName") {
			t.Errorf("a deployment with a misspelt field: %v, want it refused", err)
		}
	})
}

// lifeOfARelease leaves the CRDs behind, as Helm does.
func lifeOfARelease(ctx context.Context, t *testing.T, c *localcluster.Cluster) {
	replicas := func(want int32) {
		t.Helper()
		d, err := c.Clientset().AppsV1().Deployments(release).Get(ctx, "lockstep-scheduler", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if *d.Spec.Replicas != want {
			t.Errorf("replicas of the scheduler: %d, want %d", *d.Spec.Replicas, want)
		}
	}
	helm := func(args ...string) {
		t.Helper()
		if _, err := c.Shell(ctx, "helm --namespace "+release+" "+strings.Join(args, " ")); err != nil {
			t.Fatal(err)
		}
	}
	helm("install lockstep manifests/chart --create-namespace")
	replicas(2)
	if _, err := c.Shell(ctx, "helm show crds manifests/chart | kubectl apply --server-side --force-conflicts -f -"); err != nil {
		t.Errorf("the CRDs of a new version: %v", err)
	}
	helm("upgrade lockstep manifests/chart --reset-then-reuse-values --set scheduler.replicas=3 --set descheduler.enabled=true")
	replicas(3)
	helm("rollback lockstep 1")
	replicas(2)
	if _, err := c.Clientset().AppsV1().Deployments(release).Get(ctx, "lockstep-descheduler", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the descheduler after the way back to a release without it: %v, want it gone", err)
	}
	helm("uninstall lockstep")
	left, err := c.Clientset().AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("deployments after the end: %d, %v", len(left.Items), err)
	}
	if _, err := c.Kubectl(ctx, "get", "queues,reservations,podgroups,podmigrations,defragmentationplans"); err != nil {
		t.Errorf("the CRDs are gone with the release: %v", err)
	}
}

func allIsAccepted(ctx context.Context, t *testing.T, c *localcluster.Cluster) {
	all := map[string]string{
		"the chart":               template(t, release),
		"the chart, all on":       template(t, release, slices.Concat(everything, trainingPool)...),
		"the chart, in a CronJob": template(t, release, append(slices.Clip(everything), "descheduler.schedule=*/10 * * * *")...),
		"the chart, instead":      template(t, system, "scheduler.mode=Instead"),
		"the CRDs of the chart":   mustRun(t, "helm", "show", "crds", chart()),
	}
	for _, pattern := range []string{"*/kustomization.yaml", "*/workload/kustomization.yaml", "rbac/node-marks.yaml", "rbac/provisioning-requests.yaml", "crds/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(root, "manifests", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			path, err := filepath.Rel(filepath.Join(root, "manifests"), strings.TrimSuffix(path, "/kustomization.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			all[path] = kustomize(t, path)
		}
	}
	// Prometheus has a namespace of its own, which is there before its roles are.
	if out, err := c.Kubectl(ctx, "create", "namespace", "monitoring"); err != nil {
		t.Fatal(err, out)
	}
	applyOperatorCRDs(ctx, t, c)
	for name, text := range all {
		if err := check(ctx, t, c, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// everything is on, with a value for all that takes one.
var everything = []string{
	"images.registry=host/project", "images.tag=v1", "images.pullSecrets[0].name=login",
	"scheduler.podDisruptionBudget.maxUnavailable=1", "scheduler.tolerations[0].operator=Exists", "scheduler.podLabels.team=a",
	"controller.nodeMarks.enabled=true", "controller.podDisruptionBudget.minAvailable=50%", "controller.podAnnotations.a=b",
	"controller.resources.limits.memory=1Gi", "controller.nodeSelector.pool=system",
	"descheduler.enabled=true", "descheduler.podDisruptionBudget.maxUnavailable=1", "gangsByOwner.policy=true", "monitoring.enabled=true", "scheduler.provisioningRequests=true",
	"scheduler.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=kubernetes.io/hostname",
	"scheduler.serviceAccount.name=own", "scheduler.serviceAccount.annotations.a=b", "scheduler.extraEnv[0].name=GODEBUG",
	"descheduler.serviceAccount.name=mover", "controller.extraVolumes[0].name=tls", "controller.extraVolumes[0].secret.secretName=page",
	"controller.extraVolumeMounts[0].name=tls", "controller.extraVolumeMounts[0].mountPath=/tls",
	"page.enabled=true", "page.ingress.host=gangs.test", "page.ingress.className=own", "page.ingress.tlsSecret=page", "page.ingress.annotations.a=b",
	"networkPolicy.enabled=true", "networkPolicy.pageFrom[0].podSelector.matchLabels.app=proxy",
	"monitoring.podMonitor.enabled=true", "monitoring.podMonitor.labels.release=a", "monitoring.prometheusRule.enabled=true",
}

// The module of the Prometheus Operator, and its checksum as in a go.sum.
const (
	operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	operatorSum    = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)

// applyOperatorCRDs makes the API server serve the kinds of the Prometheus Operator that the chart has.
func applyOperatorCRDs(ctx context.Context, t *testing.T, c *localcluster.Cluster) {
	t.Helper()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", operatorModule)
	download.Env = append(os.Environ(), "GONOSUMDB=github.com/prometheus-operator") // its sum is checked here
	out, err := download.Output()
	if err != nil {
		t.Fatalf("downloading %s: %v: %s", operatorModule, err, out)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil || module.Sum != operatorSum {
		t.Fatalf("checksum of %s: %q, %v, want %q", operatorModule, module.Sum, err, operatorSum)
	}
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		file := filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+kind+".yaml")
		if out, err := c.Kubectl(ctx, "create", "--filename", file); err != nil {
			t.Fatal(err, out)
		}
		if out, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "crd/"+kind+".monitoring.coreos.com"); err != nil {
			t.Fatal(err, out)
		}
	}
}

// check makes the API server report what it would do with objects. Nothing is stored.
func check(ctx context.Context, t *testing.T, c *localcluster.Cluster, text string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing what was rendered: %w", err)
	}
	_, err := c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename", file)
	return err
}
