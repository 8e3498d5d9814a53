package podgroups

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
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
	mapper := mapperOfBoth()
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

// minimums are the minimums of PodGroups, by API and name.
type minimums map[string]int64

func (m minimums) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	group := object.GetObjectKind().GroupVersionKind().Group
	minimum, ok := m[group+"/"+key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: "podgroups"}, key.Name)
	}
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	if u, whole := object.(*unstructured.Unstructured); whole {
		field := []string{"spec", "minMember"}
		if group == "scheduling.k8s.io" {
			field = []string{"spec", "schedulingPolicy", "gang", "minCount"}
		}
		return unstructured.SetNestedField(u.Object, minimum, field...)
	}
	return nil
}

func (minimums) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestMinimum: the PodGroup of the community has precedence over that of Kubernetes, and the annotation of a pod counts
// where there is none.
func TestMinimum(t *testing.T) {
	live := minimums{"scheduling.x-k8s.io/one": 3, "scheduling.k8s.io/one": 4, "scheduling.k8s.io/native": 5}
	mapper := mapperOfBoth()
	byAnnotation := map[string]string{v1alpha1.GangNameAnnotation: "job", v1alpha1.MinAvailableAnnotation: "2"}
	staged := map[string]string{v1alpha1.GangNameAnnotation: "job", v1alpha1.MinAvailableAnnotation: "2", v1alpha1.StagesAnnotation: "1,1"}
	for sentence, c := range map[string]struct {
		labels, annotations map[string]string
		want                int
	}{
		"in no gang":                     {},
		"as its PodGroup says":           {labels: map[string]string{v1alpha1.PodGroupLabel: "one"}, want: 3},
		"as the native one says":         {labels: map[string]string{v1alpha1.PodGroupLabel: "native"}, want: 5},
		"as the pod says":                {annotations: byAnnotation, want: 2},
		"of a gang that starts in parts": {annotations: staged},
		"nobody says it":                 {labels: map[string]string{v1alpha1.PodGroupLabel: "other"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := Minimum(t.Context(), live, mapper, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: c.labels, Annotations: c.annotations}})
			if err != nil || got != c.want {
				t.Errorf("%d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func mapperOfBoth() meta.RESTMapper {
	community, native := schema.GroupVersion{Group: "scheduling.x-k8s.io", Version: "v1alpha1"}, schema.GroupVersion{Group: "scheduling.k8s.io", Version: "v1beta1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{community, native})
	mapper.Add(community.WithKind("PodGroup"), meta.RESTScopeNamespace)
	mapper.Add(native.WithKind("PodGroup"), meta.RESTScopeNamespace)
	return mapper
}
