package podgroupreader

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/sample/queuecases"
)

// stored is the PodGroups of a name.
type stored queuecases.Case

func (s stored) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) (err error) {
	u, kind := object.(*unstructured.Unstructured), object.GetObjectKind().GroupVersionKind()
	switch {
	case kind.Group == community && s.Community != nil:
		u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(s.Community)
	case kind.Group == native && s.Native != nil:
		u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(s.Native)
	default:
		return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "podgroups"}, key.Name)
	}
	u.SetGroupVersionKind(kind)
	return err
}

func (stored) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestQueue: a pod that names no queue is in that of its PodGroup, as in the scheduler.
func TestQueue(t *testing.T) {
	mapper := fakeapi.Mapper(coscheduling.Kind, fakeapi.NativePodGroup)
	for sentence, c := range queuecases.Cases() {
		t.Run(sentence, func(t *testing.T) {
			if got, err := Queue(t.Context(), stored(c), mapper, c.Pod); err != nil || got != c.Named {
				t.Errorf("%q, %v; want %q", got, err, c.Named)
			}
		})
	}
}
