package reservepods

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/watchlist"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// calls are the calls about one pod, by the name of the method.
var calls = map[string]func(ctx context.Context, pods corev1.PodInterface, name string) error{
	"Get": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err
	},
	"Update": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		_, err := pods.Update(ctx, podNamed(name), metav1.UpdateOptions{})
		return err
	},
	"UpdateStatus": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		_, err := pods.UpdateStatus(ctx, podNamed(name), metav1.UpdateOptions{})
		return err
	},
	"Patch": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		_, err := pods.Patch(ctx, name, strategic, []byte(`{"status":{"nominatedNodeName":"n2"}}`), metav1.PatchOptions{}, "status")
		return err
	},
	"Delete": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{})
	},
	"Bind": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		return pods.Bind(ctx, bindingOf(name, "n1"), metav1.CreateOptions{})
	},
	"EvictV1": func(ctx context.Context, pods corev1.PodInterface, name string) error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
	},
}

func podNamed(name string) *v1.Pod {
	return reservePod("a").Name(name).NominatedNodeName("n2").Obj()
}

// TestClientAnswersForReservePods: no call of a scheduler about a reserve pod reaches the API server, whether the
// pod exists or not; all others do.
func TestClientAnswersForReservePods(t *testing.T) {
	name := PodName("a", 0)
	for method, want := range map[string]string{
		"Get":          "1",
		"Update":       "1", // of nothing
		"UpdateStatus": "2",
		"Patch":        "2",
		"Delete":       "gone",
		"Bind":         "2",
		"EvictV1":      "gone",
	} {
		t.Run(method, func(t *testing.T) {
			inner, store := fake.NewClientset(), storeOf(t, reservePod("a").Obj())
			pods := Client(inner, store).CoreV1().Pods(ns)
			err := calls[method](t.Context(), pods, name)
			switch pod, getErr := pods.Get(t.Context(), name, metav1.GetOptions{}); {
			case err != nil:
				t.Error(err)
			case apierrors.IsNotFound(getErr) && want == "gone":
			case getErr != nil || pod.ResourceVersion != want:
				t.Errorf("the pod has version %q (%v), want %s", pod.ResourceVersion, getErr, want)
			}
			if err := calls[method](t.Context(), pods, PodName("b", 0)); !apierrors.IsNotFound(err) {
				t.Errorf("of a pod that is not there: %v", err)
			}
			if err := calls[method](t.Context(), Client(inner, store).CoreV1().Pods("other"), name); !apierrors.IsNotFound(err) {
				t.Errorf("of a pod in another namespace: %v", err)
			}
			if actions := inner.Actions(); len(actions) > 0 {
				t.Errorf("the API server hears of it: %v", actions)
			}
			_ = calls[method](t.Context(), pods, "real")
			if len(inner.Actions()) == 0 {
				t.Error("the API server does not hear of a real pod")
			}
		})
	}
}

// TestEveryCallAboutOnePodIsKnown: a new method of client-go's has to be looked at.
func TestEveryCallAboutOnePodIsKnown(t *testing.T) {
	other := []string{"List", "Watch", "DeleteCollection", "GetLogs", "ProxyGet"}
	refused := []string{"Create", "Evict", "EvictV1beta1", "Apply", "ApplyStatus", "UpdateEphemeralContainers", "UpdateResize"}
	var unknown []string
	for method := range reflect.TypeFor[corev1.PodInterface]().Methods() {
		if calls[method.Name] == nil && !slices.Contains(slices.Concat(other, refused), method.Name) {
			unknown = append(unknown, method.Name)
		}
	}
	expect(t, "unknown methods", nil, unknown)
}

func TestClientHonoursPreconditions(t *testing.T) {
	name, uid := PodName("a", 0), types.UID("other")
	pods := Client(fake.NewClientset(), storeOf(t, reservePod("a").Obj())).CoreV1().Pods(ns)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if err := pods.Delete(t.Context(), name, options); !apierrors.IsConflict(err) {
		t.Errorf("Delete says %v", err)
	}
	if err := pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: &options}); !apierrors.IsConflict(err) {
		t.Errorf("Evict says %v", err)
	}
}

func TestListsAreOfTheAPIServer(t *testing.T) {
	inner := fake.NewClientset(st.MakePod().Namespace(ns).Name("real").Obj())
	client := Client(inner, storeOf(t, reservePod("a").Obj()))
	list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	if diff := cmp.Diff([]string{"real"}, names(list)); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if !watchlist.DoesClientNotSupportWatchListSemantics(client) {
		t.Error("lists of a fake client are streamed")
	}
}
