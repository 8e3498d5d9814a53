package apiwrites

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// waiting returns a pod that no node has room for.
func waiting() *v1.Pod {
	return &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "2", Generation: 1 << 60, Labels: map[string]string{"app": "train"},
		},
		Status: v1.PodStatus{NominatedNodeName: "n1", Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "no room"},
			{Type: "Other", Status: v1.ConditionTrue},
		}},
	}
}

func TestPatch(t *testing.T) {
	for name, c := range map[string]struct {
		kind    types.PatchType
		patch   string
		refused bool
		want    func(pod *v1.Pod)
	}{
		"a merge patch replaces a list": {
			kind: types.MergePatchType, patch: `{"status":{"conditions":[{"type":"Other","status":"False"}]}}`,
			want: func(pod *v1.Pod) {
				pod.Status.Conditions = []v1.PodCondition{{Type: "Other", Status: v1.ConditionFalse}}
			},
		},
		"a strategic merge patch changes an element of a list": {
			kind: types.StrategicMergePatchType, patch: `{"status":{"conditions":[{"type":"Other","status":"False"}]}}`,
			want: func(pod *v1.Pod) { pod.Status.Conditions[1].Status = v1.ConditionFalse },
		},
		"a JSON patch names paths": {
			kind: types.JSONPatchType, patch: `[{"op":"test","path":"/metadata/labels/app","value":"train"},{"op":"remove","path":"/status/nominatedNodeName"}]`,
			want: func(pod *v1.Pod) { pod.Status.NominatedNodeName = "" },
		},
		"null removes a field":                {kind: types.MergePatchType, patch: `{"metadata":{"labels":null}}`, want: func(pod *v1.Pod) { pod.Labels = nil }},
		"a JSON patch whose test fails":       {kind: types.JSONPatchType, patch: `[{"op":"test","path":"/metadata/labels/app","value":"serve"}]`, refused: true},
		"a JSON patch that is no list":        {kind: types.JSONPatchType, patch: `{}`, refused: true},
		"a document that is none":             {kind: types.StrategicMergePatchType, patch: `{"status":`, refused: true},
		"a patch of a server-side apply":      {kind: types.ApplyYAMLPatchType, patch: `{}`, refused: true},
		"a patch of a type that is not known": {kind: "", patch: `{}`, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			want := waiting()
			if c.want != nil {
				c.want(want)
			}
			got := &v1.Pod{}
			untyped, patched := &unstructured.Unstructured{}, &unstructured.Unstructured{}
			var err error
			untyped.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(waiting())
			must.Succeed(t, err)
			for _, err := range []error{Patch(waiting(), c.kind, []byte(c.patch), got), Patch(untyped, c.kind, []byte(c.patch), patched)} {
				if apierrors.IsBadRequest(err) != c.refused || (err != nil) != c.refused {
					t.Errorf("got error %v; refused should be %t", err, c.refused)
				}
			}
			if c.refused {
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("typed (-want +got):\n%s", diff)
			}
			same := &v1.Pod{}
			must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(patched.Object, same))
			if diff := cmp.Diff(want, same); diff != "" {
				t.Errorf("untyped (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKindThatIsNotKnown: the lists of an object of an unknown kind can be merged in no way of their own.
func TestKindThatIsNotKnown(t *testing.T) {
	custom := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}
	patch := []byte(`{"spec":{"size":1}}`)
	if err := Patch(custom, types.StrategicMergePatchType, patch, &unstructured.Unstructured{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a strategic merge patch: %v, want a bad request", err)
	}
	got := &unstructured.Unstructured{}
	must.Succeed(t, Patch(custom, types.MergePatchType, patch, got))
	if size, _, _ := unstructured.NestedInt64(got.Object, "spec", "size"); size != 1 {
		t.Errorf("got %v", got)
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		uid      types.UID
		version  string
		conflict bool
	}{
		"nothing is expected":                        {},
		"the UID and the resourceVersion are":        {uid: "u", version: "2"},
		"the UID is another's":                       {uid: "other", conflict: true},
		"the resourceVersion is of another":          {version: "1", conflict: true},
		"the UID is its own, and the version is not": {uid: "u", version: "1", conflict: true},
		"the version is its own, and the UID is not": {uid: "other", version: "2", conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(v1.Resource("pods"), waiting(), c.uid, c.version)
			if apierrors.IsConflict(err) != c.conflict || (err != nil) != c.conflict {
				t.Errorf("got %v; a conflict should be %t", err, c.conflict)
			}
		})
	}
}

func bindingTo(node string) *v1.Binding {
	return &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "2", Annotations: map[string]string{"k": "v"}, Labels: map[string]string{"app": "other"}},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
}

func TestBoundPodIsAsTheAPIServerMakesIt(t *testing.T) {
	pod := waiting()
	must.Succeed(t, Bind(pod, bindingTo("n2")))
	if pod.Spec.NodeName != "n2" || pod.Status.NominatedNodeName != "" || pod.Annotations["k"] != "v" || pod.Labels["app"] != "other" {
		t.Errorf("got node %q, nominated node %q, annotations %v, labels %v", pod.Spec.NodeName, pod.Status.NominatedNodeName, pod.Annotations, pod.Labels)
	}
	if _, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled); c == nil || c.Status != v1.ConditionTrue || c.Message != "" {
		t.Errorf("the condition is %v", c)
	}
	if _, c := podutil.GetPodCondition(&pod.Status, "Other"); c == nil || c.Status != v1.ConditionTrue {
		t.Errorf("another condition is %v now", c)
	}
}

func TestRefusedBindings(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(pod *v1.Pod, binding *v1.Binding)
		want func(error) bool
	}{
		"to no node":                {func(_ *v1.Pod, b *v1.Binding) { b.Target.Name = "" }, apierrors.IsBadRequest},
		"of another UID":            {func(_ *v1.Pod, b *v1.Binding) { b.UID = "other" }, apierrors.IsConflict},
		"of a version that is past": {func(_ *v1.Pod, b *v1.Binding) { b.ResourceVersion = "1" }, apierrors.IsConflict},
		"of a pod that has a node":  {func(pod *v1.Pod, _ *v1.Binding) { pod.Spec.NodeName = "n2" }, apierrors.IsConflict},
	} {
		t.Run(name, func(t *testing.T) {
			pod, binding := waiting(), bindingTo("n2")
			c.do(pod, binding)
			before := pod.DeepCopy()
			if err := Bind(pod, binding); !c.want(err) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod changed (-before +after):\n%s", diff)
			}
		})
	}
}
