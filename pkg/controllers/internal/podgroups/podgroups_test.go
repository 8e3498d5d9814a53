package podgroups

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
)

// stored is the queues that PodGroups name, by API and name.
type stored map[string]string

func (s stored) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	group := object.GetObjectKind().GroupVersionKind().Group
	queue, ok := s[group+"/"+key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: "podgroups"}, key.Name)
	}
	object.SetLabels(map[string]string{v1alpha1.QueueLabel: queue})
	return nil
}

func (stored) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestQueue: a pod that names no queue is in that of its PodGroup, of the community's first.
func TestQueue(t *testing.T) {
	live := stored{"scheduling.x-k8s.io/one": "a", "scheduling.k8s.io/one": "b", "scheduling.x-k8s.io/none": "", "scheduling.k8s.io/none": "b"}
	mapper := fakeapi.Mapper(coscheduling.Kind, fakeapi.NativePodGroup)
	for sentence, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"in no gang":         {nil, ""},
		"its gang's":         {map[string]string{v1alpha1.PodGroupLabel: "one"}, "a"},
		"the native one's":   {map[string]string{v1alpha1.PodGroupLabel: "none"}, "b"},
		"its own":            {map[string]string{v1alpha1.PodGroupLabel: "one", v1alpha1.QueueLabel: "own"}, ""},
		"a gang without any": {map[string]string{v1alpha1.PodGroupLabel: "other"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := Queue(t.Context(), live, mapper, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: c.labels}})
			if err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}
