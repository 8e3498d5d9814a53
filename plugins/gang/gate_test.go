package gang

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// TestHeard: of the events that the scheduler's cache takes in, those that may help a waiting gang cause
// a retry, and no others do.
func TestHeard(t *testing.T) {
	node := st.MakeNode().Name("n").Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "4"})
	changed := func(change func(*v1.Node)) *v1.Node {
		n := node.Obj().DeepCopy()
		change(n)
		return n
	}
	annotated := func(key, value string) *v1.Node {
		return changed(func(n *v1.Node) { n.Annotations = map[string]string{key: value} })
	}
	runs := sample.Bound(plainPod("runs", "2"), "n")
	less := func(change func(*v1.PodSpec, v1.ResourceList)) (before, after *v1.Pod) {
		list := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
		before, after = runs.DeepCopy(), runs.DeepCopy()
		change(&before.Spec, list("2"))
		change(&after.Spec, list("1"))
		return before, after
	}
	always := v1.ContainerRestartPolicyAlways
	sidecar := func(s *v1.PodSpec, list v1.ResourceList) {
		s.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list}}}
	}
	podLevel := func(s *v1.PodSpec, list v1.ResourceList) { s.Resources = &v1.ResourceRequirements{Requests: list} }
	container := func(s *v1.PodSpec, list v1.ResourceList) {
		s.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}}
	}
	type event struct {
		fwk.ClusterEvent
		before, after any
	}
	nodeUpdate := func(after *v1.Node) []event {
		var all []event
		for _, e := range framework.NodeSchedulingPropertiesChange(after, node.Obj()) {
			all = append(all, event{e, node.Obj(), after})
		}
		return all
	}
	podUpdate := func(before, after *v1.Pod) []event {
		var all []event
		for _, e := range framework.PodSchedulingPropertiesChange(after, before, false) {
			all = append(all, event{e, before, after})
		}
		return all
	}
	labelled := runs.DeepCopy()
	labelled.Labels = map[string]string{"app": "other"}
	touched := runs.DeepCopy()
	touched.Annotations = map[string]string{"some": "thing"}
	for sentence, c := range map[string]struct {
		events            []event
		coupled, hopeless bool
		want              bool
	}{
		"a node comes":                         {events: []event{{fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, node.Obj()}}, want: true},
		"a node has more":                      {events: nodeUpdate(changed(func(n *v1.Node) { n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")} })), want: true},
		"a taint goes":                         {events: nodeUpdate(changed(func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "x", Effect: v1.TaintEffectNoSchedule}} })), want: true},
		"a node's cards are corrected":         {events: nodeUpdate(annotated(v1alpha1.GPUCardsAnnotation, "8,8")), want: true},
		"an annotation that is no concern":     {events: nodeUpdate(annotated("example.com/heartbeat", "now"))},
		"a condition of a node":                {events: nodeUpdate(changed(func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: "Quiet", Status: "True"}} }))},
		"a pod is gone":                        {events: []event{{framework.EventAssignedPodDelete, runs, nil}}, want: true},
		"a container takes less":               {events: podUpdate(less(container)), want: true},
		"a sidecar takes less":                 {events: podUpdate(less(sidecar)), want: true},
		"a pod as a whole takes less":          {events: podUpdate(less(podLevel)), want: true},
		"a pod is annotated":                   {events: podUpdate(runs, touched)},
		"a pod comes to a node":                {events: []event{{framework.EventAssignedPodAdd, nil, runs}}},
		"to members that care about others":    {events: []event{{framework.EventAssignedPodAdd, nil, runs}}, coupled: true, want: true},
		"a pod gets another label":             {events: podUpdate(runs, labelled)},
		"and members care about others":        {events: podUpdate(runs, labelled), coupled: true, want: true},
		"a volume comes":                       {events: []event{{fwk.ClusterEvent{Resource: fwk.PersistentVolume, ActionType: fwk.Add}, nil, &v1.PersistentVolume{}}}, want: true},
		"devices come":                         {events: []event{{fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add}, nil, dra.Slice("n", 1)}}, want: true},
		"and it needs more than there were":    {events: []event{{fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add}, nil, dra.Slice("n", 1)}}, hopeless: true, want: true},
		"a node has more devices":              {events: []event{{fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Update}, dra.Slice("n", 1), dra.Slice("n", 2)}}, hopeless: true, want: true},
		"a class selects other devices":        {events: []event{{fwk.ClusterEvent{Resource: fwk.DeviceClass, ActionType: fwk.Update}, dra.Class(), dra.Class()}}, hopeless: true, want: true},
		"it needs more than a pod leaves":      {events: []event{{framework.EventAssignedPodDelete, runs, nil}}, hopeless: true},
		"a pod that has no node is gone":       {events: []event{{framework.EventUnscheduledPodDelete, runs, nil}}},
		"an annotation that is withdrawn, too": {events: []event{{fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, annotated(v1alpha1.GPUCardsAnnotation, "8"), node.Obj()}}, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes := makeNodes(1, 1)
			s := newStage(t, nodes, fill(nodes, 2)...)
			var change func(int, *st.PodWrapper)
			if c.coupled {
				change = func(_ int, pod *st.PodWrapper) {
					pod.PodAntiAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithPreferredReq)
				}
			}
			count := 3
			if c.hopeless {
				count = 9
			}
			members := makeMembers("train", count, 1, change)
			if at, failed := s.run(t, members); len(at) > 0 || failed != 1 {
				t.Fatalf("held on %v after %d failures", at, failed)
			}
			waits := func() bool { return !s.PreEnqueue(s.ctx, members[0]).IsSuccess() }
			s.ask()
			if !waits() {
				t.Fatal("it is tried again, and nothing has happened")
			}
			for _, e := range c.events {
				s.room.HandleEvent(e.ClusterEvent, e.before, e.after)
			}
			s.ask()
			if waits() == c.want {
				t.Errorf("it is tried again: %t", !waits())
			}
		})
	}
}
