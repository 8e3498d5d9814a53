package simulate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// group returns some pods of a gang.
func group(n, least int, gang string, changes ...func(*v1.Pod)) (pods []*v1.Pod) {
	for i := range n {
		pod := member(fmt.Sprint(gang, "-", i), gang, least)
		for _, c := range changes {
			c(pod)
		}
		pods = append(pods, pod)
	}
	return pods
}

// TestNoWaitInVain: there is an answer soon, whatever keeps pods waiting.
func TestNoWaitInVain(t *testing.T) {
	an := func(k, v string) func(*v1.Pod) { return func(p *v1.Pod) { p.Annotations[k] = v } }
	pg := func(name string, least int64) Object {
		return Object{podGroups, map[string]any{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": map[string]any{"namespace": "default", "name": name, "uid": name}, "spec": map[string]any{"minMember": least}}}
	}
	label := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Annotations, p.Labels = map[string]string{}, map[string]string{v1alpha1.PodGroupXLabel: name}
		}
	}
	gate := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x/y"}} }
	cases := map[string]struct {
		pods []*v1.Pod
		more []Object
	}{
		"fits":                  {pods: group(4, 4, "train")},
		"cannot fit":            {pods: group(65, 65, "train")},
		"hopeless":              {pods: group(2, 2, "train", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} })},
		"nonstrict too big":     {pods: group(65, 65, "train", an(v1alpha1.ModeAnnotation, "NonStrict"))},
		"spare":                 {pods: group(66, 60, "train")},
		"too few":               {pods: group(2, 4, "train")},
		"gated":                 {pods: group(4, 4, "train", gate)},
		"one gated":             {pods: append(group(3, 4, "train"), group(1, 4, "train", gate, func(p *v1.Pod) { p.Name, p.UID = "train-g", "train-g" })...)},
		"podgroup too few":      {pods: group(2, 0, "train", label("train")), more: []Object{pg("train", 5)}},
		"podgroup fits":         {pods: group(2, 0, "train", label("train")), more: []Object{pg("train", 2)}},
		"podgroup missing":      {pods: group(2, 0, "train", label("train"))},
		"other of the group":    {pods: group(2, 2, "train", an(v1alpha1.GroupsAnnotation, `["default/train","default/other"]`))},
		"bad groups":            {pods: group(2, 2, "train", an(v1alpha1.GroupsAnnotation, `[`))},
		"bad min":               {pods: group(2, 2, "train", an(v1alpha1.MinAvailableAnnotation, `x`))},
		"bad gang name":         {pods: group(2, 2, "train", an(v1alpha1.GangNameAnnotation, `A/B c`))},
		"no profile":            {pods: group(2, 2, "train", func(p *v1.Pod) { p.Spec.SchedulerName = "nobody" })},
		"half no profile":       {pods: append(group(2, 4, "train"), group(2, 4, "train", func(p *v1.Pod) { p.Name, p.UID, p.Spec.SchedulerName = p.Name+"x", p.UID+"x", "nobody" })...)},
		"two, one fits":         {pods: append(group(60, 60, "train"), group(20, 20, "other")...)},
		"two, other first":      {pods: append(group(20, 20, "other"), group(60, 60, "train")...)},
		"timed out":             {pods: group(2, 2, "train", an(v1alpha1.TimeoutAnnotation, "true"))},
		"no gang, does not fit": {pods: group(1, 2, "train", func(p *v1.Pod) { p.Annotations = nil; p.Spec.NodeSelector = map[string]string{"a": "b"} })},
		"missing claim": {pods: group(2, 2, "train", func(p *v1.Pod) {
			n := "none"
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: &n}}
		})},
		"missing claim, no gang": {pods: group(1, 2, "train", func(p *v1.Pod) {
			n := "none"
			p.Annotations, p.Spec.ResourceClaims = nil, []v1.PodResourceClaim{{Name: "c", ResourceClaimName: &n}}
		})},
		"missing template claim": {pods: group(2, 2, "train", func(p *v1.Pod) {
			n := "none"
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &n}}
		})},
		"missing pvc": {pods: group(2, 2, "train", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}}}}
		})},
		"native not served": {pods: group(2, 2, "train", func(p *v1.Pod) {
			n := "none"
			p.Annotations = nil
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &n}
		})},
		"namesake": {pods: group(2, 0, "train", label("train"), func(p *v1.Pod) {
			tr := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "2", Controller: &tr}}
		}),
			more: []Object{func() Object {
				o := pg("train", 2)
				u := unstructured.Unstructured{Object: o.Object}
				tr := true
				u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "1", Controller: &tr}})
				return o
			}()}},
		"bad affinity": {pods: group(2, 2, "train", func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a b", Operator: "Foo"}}}}}}}
		})},
		"deleted": {pods: group(2, 2, "train", func(p *v1.Pod) { n := metav1.Now(); p.DeletionTimestamp = &n; p.Finalizers = []string{"a/b"} })},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s, err := New(&Environment{Cluster: &source.Cluster{Base: small(t)}})
			must.Succeed(t, err)
			defer s.Close()
			more := c.more
			for _, pod := range c.pods {
				o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
				must.Succeed(t, err)
				more = append(more, Object{Pods, o})
			}
			must.Succeed(t, s.Suppose(more))
			began := time.Now()
			must.Succeed(t, s.Start(ctx))
			answer, err := s.Decide(ctx, c.pods)
			must.Succeed(t, err)
			took := time.Since(began)
			if answer.Undecided || took > 4*time.Second {
				t.Errorf("it took %v, undecided: %t", took, answer.Undecided)
			}
			for _, v := range answer.Verdicts {
				if v.Node == "" && v.Reason == "" {
					t.Errorf("nothing is told of pod %s", v.Pod.Name)
				}
				if strings.HasPrefix(name, "missing claim") && (v.Reason != ReasonKeptOut || !strings.Contains(v.Message, "none")) {
					t.Errorf("pod %s is told %q, %q; want %s, and the claim", v.Pod.Name, v.Reason, v.Message, ReasonKeptOut)
				}
			}
		})
	}
}
