package reservepods

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/diff"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	internal "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // for the strategy
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	registry "k8s.io/kubernetes/pkg/registry/core/pod"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// defaulted returns a reserve pod as the API server would have taken it in.
func defaulted() *v1.Pod {
	pod := reservePod("a").Annotation("note", "kept").NominatedNodeName("n1").Obj()
	pod.TypeMeta = metav1.TypeMeta{}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Thing", Name: "thing", UID: "thing"}}
	pod.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "no room"},
		{Type: "Other", Status: v1.ConditionTrue},
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].TerminationMessagePolicy = v1.TerminationMessageReadFile
	}
	corev1.SetObjectDefaults_Pod(pod)
	return pod
}

// apiServer returns what the API server's own code makes of a patch of a pod: the merge, and the
// strategy of pods.
func apiServer(t *testing.T, before *v1.Pod, kind types.PatchType, patch []byte, subresources ...string) (*v1.Pod, error) {
	t.Helper()
	pods, tracker := v1.SchemeGroupVersion.WithResource("pods"), clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	must.Succeed(t, tracker.Add(before.DeepCopy()))
	_, object, err := clienttesting.ObjectReaction(tracker)(clienttesting.NewPatchSubresourceAction(pods, ns, before.Name, kind, patch, subresources...))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	now := object.(*v1.Pod)
	now.ResourceVersion = before.ResourceVersion // conflicts are in the table
	now.ManagedFields = nil
	oldInternal, newInternal := &internal.Pod{}, &internal.Pod{}
	for from, to := range map[*v1.Pod]*internal.Pod{before.DeepCopy(): oldInternal, now: newInternal} {
		must.Succeed(t, corev1.Convert_v1_Pod_To_core_Pod(from, to, nil))
		to.Name = "one-that-is-allowed"
	}
	var strategy rest.RESTUpdateStrategy = registry.Strategy
	if len(subresources) > 0 {
		strategy = registry.StatusStrategy
	}
	ctx := genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(t.Context(), ns), &genericapirequest.RequestInfo{
		APIVersion: "v1", Resource: "pods", Namespace: ns, Verb: "patch",
	})
	if err := rest.BeforeUpdate(strategy, ctx, newInternal, oldInternal); err != nil {
		return nil, err
	}
	result := &v1.Pod{}
	must.Succeed(t, corev1.Convert_core_Pod_To_v1_Pod(newInternal, result, nil))
	result.Name = before.Name
	return result, nil
}

// compare makes the store and the API server's code patch the same pod.
func compare(t *testing.T, kind types.PatchType, patch []byte, subresources ...string) {
	t.Helper()
	s := storeOf(t, defaulted())
	before := get(t, s, PodName("a", 0))
	want, wantErr := apiServer(t, before, kind, patch, subresources...)
	got, gotErr := s.Patch(ns, before.Name, kind, patch, subresources...)
	if reason(wantErr) != reason(gotErr) {
		t.Fatalf("%s of %s: the API server says %v, the store %v", kind, patch, wantErr, gotErr)
	}
	stored := get(t, s, before.Name)
	if gotErr != nil {
		want = before
		got = stored
	}
	if changed := !equality.Semantic.DeepEqual(before, want); changed != (stored.ResourceVersion != "1") {
		t.Errorf("%s of %s: a change is %t, and the resourceVersion is %s", kind, patch, changed, stored.ResourceVersion)
	}
	want.ResourceVersion = stored.ResourceVersion
	for name, pod := range map[string]*v1.Pod{"returned": got, "stored": stored} {
		if !equality.Semantic.DeepEqual(want, pod) {
			t.Errorf("%s of %s: %s pod differs:\n%s", kind, patch, name, diff.Diff(want, pod))
		}
	}
}

func reason(err error) metav1.StatusReason {
	if err == nil {
		return ""
	}
	return apierrors.ReasonForError(err)
}

func TestPatchIsThatOfTheAPIServer(t *testing.T) {
	for name, patch := range map[string]string{
		"an annotation is added":                     `{"metadata":{"annotations":{"k":"v"}}}`,
		"an annotation is changed":                   `{"metadata":{"annotations":{"note":"other"}}}`,
		"an annotation is removed":                   `{"metadata":{"annotations":{"note":null}}}`,
		"all annotations are removed":                `{"metadata":{"annotations":null}}`,
		"an annotation that is not there is removed": `{"metadata":{"annotations":{"k":null}}}`,
		"a label is changed":                         `{"metadata":{"labels":{"app":"other"}}}`,
		"the UID is the pod's":                       `{"metadata":{"uid":"reservation_a_0","annotations":{"k":"v"}}}`,
		"the UID is another":                         `{"metadata":{"uid":"other","annotations":{"k":"v"}}}`,
		"the UID is another, and nothing else":       `{"metadata":{"uid":"other"}}`,
		"the UID is null":                            `{"metadata":{"uid":null,"annotations":{"k":"v"}}}`,
		"the time of creation is another":            `{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}`,
		"the generation is another":                  `{"metadata":{"generation":7}}`,
		"an owner is added":                          `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Thing","name":"other","uid":"other"}]}}`,
		"the nominated node is changed":              `{"status":{"nominatedNodeName":"n2"}}`,
		"the nominated node is removed":              `{"status":{"nominatedNodeName":null}}`,
		"the phase is changed":                       `{"status":{"phase":"Failed"}}`,
		"a condition is changed":                     `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"still no room"}]}}`,
		"a condition is the same":                    `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"no room"}]}}`,
		"a condition is added":                       `{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
		"a condition is removed":                     `{"status":{"conditions":[{"$patch":"delete","type":"Other"}]}}`,
		"conditions are put into an order":           `{"status":{"$setElementOrder/conditions":[{"type":"Other"},{"type":"PodScheduled"}],"conditions":[{"type":"PodScheduled","status":"True"}]}}`,
		"a condition and the UID":                    `{"metadata":{"uid":"other"},"status":{"conditions":[{"type":"PodScheduled","status":"True"}]}}`,
		"nothing":                                    `{}`,
		"null":                                       `null`,
		"the status and an annotation":               `{"metadata":{"annotations":{"k":"v"}},"status":{"nominatedNodeName":"n2"}}`,
		"a field that does not exist":                `{"status":{"nonsense":1}}`,
		"the spec as it is":                          `{"spec":{"schedulerName":"default-scheduler"}}`,
		"a field of a wrong type":                    `{"status":{"conditions":"none"}}`,
		"a document that is none":                    `{"status":`,
		"a list":                                     `[]`,
		"nothing but a resource of the same amount":  `{"spec":{"nodeSelector":null}}`,
		"a node":            `{"spec":{"nodeName":"n1"}}`,
		"another scheduler": `{"spec":{"schedulerName":"other"}}`,
		"deletion":          `{"metadata":{"deletionTimestamp":"2024-01-01T00:00:00Z"}}`,
		"managed fields":    `{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []types.PatchType{strategic, merging} {
				compare(t, kind, []byte(patch))
				compare(t, kind, []byte(patch), "status")
			}
		})
	}
}

func TestJSONPatchIsThatOfTheAPIServer(t *testing.T) {
	for name, patch := range map[string]string{
		"an annotation is added":             `[{"op":"add","path":"/metadata/annotations/k","value":"v"}]`,
		"the UID is another":                 `[{"op":"replace","path":"/metadata/uid","value":"other"}]`,
		"a condition is removed":             `[{"op":"remove","path":"/status/conditions/1"}]`,
		"a node":                             `[{"op":"add","path":"/spec/nodeName","value":"n1"}]`,
		"what is not there is removed":       `[{"op":"remove","path":"/metadata/annotations/k"}]`,
		"it is tested for what it is":        `[{"op":"test","path":"/metadata/annotations/note","value":"kept"},{"op":"remove","path":"/metadata/annotations/note"}]`,
		"it is tested for what it is not":    `[{"op":"test","path":"/metadata/annotations/note","value":"other"},{"op":"remove","path":"/metadata/annotations/note"}]`,
		"nothing":                            `[]`,
		"a document that is no list of them": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, types.JSONPatchType, []byte(patch))
			compare(t, types.JSONPatchType, []byte(patch), "status")
		})
	}
}

// Random patches of what schedulers and plugins patch.
func TestRandomPatchesAreThoseOfTheAPIServer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...any) any { return values[random.IntN(len(values))] }
	for range 300 {
		metadata, status := map[string]any{}, map[string]any{}
		for range random.IntN(3) {
			metadata[pick("labels", "annotations").(string)] = pick(nil, map[string]any{"app": pick(nil, "x"), "note": pick(nil, "kept", "y")}, map[string]any{})
		}
		if random.IntN(4) == 0 {
			metadata["uid"] = pick("other", "reservation_a_0", nil)
		}
		if random.IntN(2) == 0 {
			status["nominatedNodeName"] = pick(nil, "", "n1", "n2")
		}
		if random.IntN(2) == 0 {
			conditions := []any{}
			for _, kind := range []string{"PodScheduled", "Other", "New"}[random.IntN(3):] {
				conditions = append(conditions, map[string]any{"type": kind, "status": pick("True", "False"), "message": pick(nil, "no room", "m")})
			}
			status["conditions"] = conditions
		}
		patch := encode(t, map[string]any{"metadata": metadata, "status": status})
		compare(t, pick(strategic, merging).(types.PatchType), patch, [][]string{nil, {"status"}}[random.IntN(2)]...)
		if t.Failed() {
			return
		}
	}
}

func TestPatchConflicts(t *testing.T) {
	name := PodName("a", 0)
	for what, c := range map[string]struct {
		name, patch  string
		kind         types.PatchType
		subresources []string
		want         metav1.StatusReason
	}{
		"the resourceVersion is the pod's":     {name, `{"metadata":{"resourceVersion":"1"},"status":{"nominatedNodeName":"n2"}}`, strategic, []string{"status"}, ""},
		"the resourceVersion is another":       {name, `{"metadata":{"resourceVersion":"7"},"status":{"nominatedNodeName":"n2"}}`, strategic, []string{"status"}, metav1.StatusReasonConflict},
		"the resourceVersion and UID are":      {name, `{"metadata":{"uid":"other","resourceVersion":"7"}}`, merging, nil, metav1.StatusReasonConflict},
		"the resourceVersion is another's own": {name, `{"metadata":{"resourceVersion":"7","annotations":{"k":"v"}}}`, merging, nil, metav1.StatusReasonConflict},
		"the resourceVersion is null":          {name, `{"metadata":{"resourceVersion":null,"annotations":{"k":"v"}}}`, merging, nil, ""},
		"the name is another":                  {name, `{"metadata":{"name":"reservation_b_0"}}`, merging, nil, metav1.StatusReasonInvalid},
		"there is no such pod":                 {PodName("b", 0), `{"metadata":{"annotations":{"k":"v"}}}`, merging, nil, metav1.StatusReasonNotFound},
		"a kind of patch that is not known":    {name, `{}`, types.ApplyYAMLPatchType, nil, metav1.StatusReasonBadRequest},
		"a subresource that is not known":      {name, `{}`, merging, []string{"resize"}, metav1.StatusReasonMethodNotAllowed},
	} {
		t.Run(what, func(t *testing.T) {
			s := storeOf(t, reservePod("a").Obj())
			_, err := s.Patch(ns, c.name, c.kind, []byte(c.patch), c.subresources...)
			if got := reason(err); got != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if changed, want := get(t, s, name).ResourceVersion != "1", c.want == ""; changed != want {
				t.Errorf("changed is %t, want %t", changed, want)
			}
		})
	}
}
