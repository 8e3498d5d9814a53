package app

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/cmd/scheduler/lease"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestGuard: with leader election, nothing that a plugin can reach writes before the lease
// is held, and all of it reads; without, there is no lease to hold.
func TestGuard(t *testing.T) {
	_, kubeconfig := apiServer(t) // it has nothing, and says so to every request
	for sentence, c := range map[string]struct {
		flag    string
		refused bool
	}{
		"with leader election":    {"--leader-elect=true", true},
		"without leader election": {"--leader-elect=false", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			handle := mustSetUp(t, "--kubeconfig", kubeconfig, c.flag).profiles["lockstep-scheduler"]
			own, err := kubernetes.NewForConfig(handle.KubeConfig())
			must.Succeed(t, err)
			for name, client := range map[string]kubernetes.Interface{"the scheduler's client": handle.ClientSet(), "a plugin's own client": own} {
				pods := client.CoreV1().Pods("ns")
				var refusal *lease.RefusedError
				if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{}); errors.As(err, &refusal) != c.refused || !c.refused && !apierrors.IsNotFound(err) {
					t.Errorf("%s deletes with %v", name, err)
				}
				if _, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("%s reads with %v", name, err)
				}
			}
		})
	}
}
