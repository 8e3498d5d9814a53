package lockstepcontroller_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestReplicas: of two replicas one works; the other follows when it goes. Metrics are
// served to users who may read them.
func TestReplicas(t *testing.T) {
	t.Parallel()
	c := start(t, manifest(t, "crds", crd))
	first := run(t, c, "first", "--leader-elect", "--leader-elect-namespace", system)
	holder := func() (string, error) {
		lease, err := c.Clientset().CoordinationV1().Leases(system).Get(t.Context(), "lockstep-controller", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return "", fmt.Errorf("reading the lease: no holder, %w", err)
		}
		return *lease.Spec.HolderIdentity, nil
	}
	var leader string
	await.NoError(t, "the first leads", func() (err error) {
		leader, err = holder()
		return err
	})
	second := run(t, c, "second", "--leader-elect", "--leader-elect-namespace", system)
	n := newNamespace(t, c, "replicas")
	g := n.createGroup(2)
	n.create(1, byLabel)
	g.wait("Pending", 0, 0, 0, incomplete)
	for _, args := range [][]string{
		{"create", "serviceaccount", "scraper", "--namespace", system},
		{"create", "clusterrolebinding", "scraper", "--clusterrole=lockstep-metrics-reader", "--serviceaccount=" + system + ":scraper"},
	} {
		n.kubectl(args...)
	}
	scraper := token(t, c, "scraper")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	checkMetrics(t, first, client, map[string]int{
		"": http.StatusUnauthorized, "forged": http.StatusUnauthorized, token(t, c, serviceAccount): http.StatusForbidden, scraper: http.StatusOK,
	})
	flood(t, c, client, "https://"+first.metrics+"/metrics", scraper)

	process, err := os.FindProcess(first.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the second leads", func() error {
		if now, err := holder(); err != nil || now == leader || now == "" {
			return fmt.Errorf("the holder is %q, %w", now, err)
		}
		return nil
	})
	g.stays() // it writes the same
	n.createPod(member("train-1", byLabel))
	g.wait("PreScheduling", 0, 0, 0, awaiting)
	for _, i := range []*instance{first, second} {
		if err := contains(i.log(t), "forbidden"); err == nil {
			t.Errorf("%s lacks permissions:\n%s", i.Name, i.log(t))
		}
	}
}

// checkMetrics reads the metrics with each token and compares the answer.
func checkMetrics(t *testing.T, i *instance, client *http.Client, tokens map[string]int) {
	t.Helper()
	for token, want := range tokens {
		await.NoError(t, "metrics are served", func() error { // a new role takes a moment
			code, err := get(client, "https://"+i.metrics+"/metrics", token)
			if err != nil || code != want {
				return fmt.Errorf("reading metrics: %d, want %d, %w", code, want, err)
			}
			return nil
		})
	}
}
