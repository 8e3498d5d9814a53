package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/sample/queuecases"
)

const (
	rack = "example.com/rack"
	zone = "topology.kubernetes.io/zone"
)

var epoch = metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))

// pod returns a pod of a gang by annotation; on a node it runs.
func pod(namespace, gang string, i int, node string, changes ...func(*v1.Pod)) *v1.Pod {
	name := fmt.Sprintf("%s-%d", gang, i)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(i) * time.Second)),
		Annotations: map[string]string{v1alpha1.GangNameAnnotation: gang, v1alpha1.MinAvailableAnnotation: "2"}, Labels: map[string]string{},
	}}
	p.Spec.SchedulerName, p.Spec.NodeName, p.Status.Phase = "lockstep-scheduler", node, v1.PodPending
	if node != "" {
		p.Status.Phase = v1.PodRunning
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// without takes a pod out of its gang by annotation.
func without(p *v1.Pod) { p.Annotations = map[string]string{} }

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

func inQueue(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = name }
}

func nominated(p *v1.Pod) { p.Status.NominatedNodeName = "a1" }

func native(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

func ofJob(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[v1alpha1.GangAnnotation] = v1alpha1.GangOwner
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: "job", Controller: new(true)}}
	}
}

// nodes returns two racks of two in a zone, and one rack in another.
func nodes() []*v1.Node {
	var list []*v1.Node
	for name, in := range map[string][2]string{"a1": {"z0", "r1"}, "a2": {"z0", "r1"}, "b1": {"z0", "r2"}, "c1": {"z1", "r10"}} {
		list = append(list, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{zone: in[0], rack: in[1]}}})
	}
	return list
}

func nativeGroup(name string, basic bool) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: epoch}}
	if basic {
		pg.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	} else {
		pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	}
	return pg
}

func TestGangs(t *testing.T) {
	group := func(name string, change func(*coscheduling.PodGroup)) *coscheduling.PodGroup {
		pg := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: epoch}}
		pg.Spec.MinMember = 2
		change(pg)
		return pg
	}
	asIs := func(*coscheduling.PodGroup) {}
	for sentence, c := range map[string]struct {
		in   GangsIn
		want []Gang
	}{
		"a pod in no gang is no gang": {in: GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "", without)}}},
		"by annotation, it waits, and a place is nominated": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "", nominated, priority(5)), pod("team", "x", 1, "", priority(3))}},
			want: []Gang{{Source: SourceAnnotation, Phase: "PreScheduling", Held: 1, Minimum: 2, Members: 2, Queue: "default", Priority: new(int32(5)), Reason: "AwaitingPlacement"}},
		},
		"members name several queues: that of the first in order counts": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "", inQueue("late")), pod("team", "x", 1, "", inQueue("early"), priority(10))}},
			want: []Gang{{Source: SourceAnnotation, Phase: "PreScheduling", Minimum: 2, Members: 2, Queue: "early", Priority: new(int32(10)), Reason: "AwaitingPlacement"}},
		},
		"it runs in one rack, which is finer than its zone": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "a1"), pod("team", "x", 1, "a2")}},
			want: []Gang{{Source: SourceAnnotation, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2, Queue: "default", Domain: &DomainName{rack, "r1"}, Reason: "MinimumBound"}},
		},
		"it runs in two racks of a zone": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "a1"), pod("team", "x", 1, "b1")}},
			want: []Gang{{Source: SourceAnnotation, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2, Queue: "default", Domain: &DomainName{zone, "z0"}, Reason: "MinimumBound"}},
		},
		"it runs in two zones, or on a node that is gone: in no domain": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "a1"), pod("team", "x", 1, "c1"), pod("team", "y", 0, "gone"), pod("team", "y", 1, "gone")}},
			want: []Gang{{Name: "x", Source: SourceAnnotation, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2, Queue: "default", Reason: "MinimumBound"}, {Name: "y", Source: SourceAnnotation, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2, Queue: "default", Reason: "MinimumBound"}},
		},
		"the topology that it requires counts, though a finer one has it, too": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "a1", annotated(v1alpha1.RequiredTopologyAnnotation, zone)), pod("team", "x", 1, "a2", annotated(v1alpha1.RequiredTopologyAnnotation, zone))}},
			want: []Gang{{Source: SourceAnnotation, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2, Queue: "default", Domain: &DomainName{zone, "z0"}, Reason: "MinimumBound"}},
		},
		"pods of a basic native PodGroup are in no gang, also where the community has one of its name": {
			in: GangsIn{PodGroups: []*coscheduling.PodGroup{group("x", asIs)}, Natives: []*schedulingv1beta1.PodGroup{nativeGroup("x", true)},
				Pods: []*v1.Pod{pod("team", "x", 0, "", without, func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("x")} })}},
			want: []Gang{{Source: SourcePodGroup, Phase: "Pending", Minimum: 2, Queue: "default", Reason: "GangIncomplete"}},
		},
		"a PodGroup names its queue, and has no pods yet": {
			in: GangsIn{PodGroups: []*coscheduling.PodGroup{group("x", func(pg *coscheduling.PodGroup) {
				pg.Labels = map[string]string{v1alpha1.QueueLabel: "research"}
			})}},
			want: []Gang{{Source: SourcePodGroup, Phase: "Pending", Minimum: 2, Queue: "research", Reason: "GangIncomplete"}},
		},
		"a namespace names its queue": {
			in:   GangsIn{PodGroups: []*coscheduling.PodGroup{group("x", asIs)}, Namespaces: []*v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{v1alpha1.QueueLabel: "interns"}}}}},
			want: []Gang{{Source: SourcePodGroup, Phase: "Pending", Minimum: 2, Queue: "interns", Reason: "GangIncomplete"}},
		},
		"an owner's pods are a gang, before its PodGroup is there": {
			in:   GangsIn{Pods: []*v1.Pod{pod("team", "x", 0, "", without, ofJob("x"))}},
			want: []Gang{{Name: "job.x", Source: SourceOwner, Phase: "Pending", Members: 1, Queue: "default", Reason: "GangUndefined"}},
		},
		"a native PodGroup": {
			in:   GangsIn{Natives: []*schedulingv1beta1.PodGroup{nativeGroup("x", false)}, Pods: []*v1.Pod{pod("team", "x", 0, "a1", without, native("x")), pod("team", "x", 1, "a1", without, native("x"))}},
			want: []Gang{{Source: SourceNative, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2, Queue: "default", Domain: &DomainName{rack, "r1"}, Reason: "MinimumBound"}},
		},
		"one whose pods are scheduled one by one is no gang": {
			in: GangsIn{Natives: []*schedulingv1beta1.PodGroup{nativeGroup("x", true)}, Pods: []*v1.Pod{pod("team", "x", 0, "", without, native("x"))}},
		},
		"unless annotations make one of its name": {
			in:   GangsIn{Natives: []*schedulingv1beta1.PodGroup{nativeGroup("x", true)}, Pods: []*v1.Pod{pod("team", "x", 0, ""), pod("team", "x", 1, "")}},
			want: []Gang{{Source: SourceAnnotation, Phase: "PreScheduling", Minimum: 2, Members: 2, Queue: "default", Reason: "AwaitingPlacement"}},
		},
		"pods that have ended hold no domain, and pods on their way out are none": {
			in: GangsIn{Pods: []*v1.Pod{
				pod("team", "x", 0, "a1", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), pod("team", "x", 1, "b1"), pod("team", "x", 2, "c1", func(p *v1.Pod) { p.DeletionTimestamp = &epoch }),
			}},
			want: []Gang{{Source: SourceAnnotation, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 1, Succeeded: 1, Queue: "default", Domain: &DomainName{rack, "r2"}, Reason: "MinimumBound"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			c.in.Nodes = nodes()
			c.in.Levels = Levels(c.in.Nodes)
			for i := range c.want {
				if c.want[i].Name == "" {
					c.want[i].Name = "x"
				}
				c.want[i].Namespace, c.want[i].Mode = "team", "Strict"
			}
			got := Gangs(c.in)
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Gang{}, "Message", "Schedulers", "Created")); diff != "" {
				t.Errorf("gangs (-want +got):\n%s", diff)
			}
			for _, g := range got {
				if g.Created != epoch || g.Message == "" {
					t.Errorf("gang %s was created %s and says %q", g.Name, g.Created, g.Message)
				}
			}
		})
	}
}

// TestQueueOf: gangs are shown in the queues in which the scheduler has them.
func TestQueueOf(t *testing.T) {
	for sentence, c := range queuecases.Cases() {
		in := GangsIn{Pods: []*v1.Pod{c.Pod}, Namespaces: []*v1.Namespace{{ObjectMeta: metav1.ObjectMeta{
			Name: queuecases.Namespace, Annotations: map[string]string{v1alpha1.QueueLabel: queuecases.OfNamespace}}}}}
		if c.Community != nil {
			in.PodGroups = append(in.PodGroups, c.Community)
		}
		if c.Native != nil {
			in.Natives = append(in.Natives, c.Native)
		}
		for _, g := range Gangs(in) {
			if shown := g.Members > 0; shown != c.InGang || shown && g.Queue != c.Want {
				t.Errorf("%s: a gang of %d members in queue %q, want %q", sentence, g.Members, g.Queue, c.Want)
			}
		}
	}
}

func TestSelected(t *testing.T) {
	pods := []*v1.Pod{
		pod("team", "x", 0, ""), pod("team", "x", 1, "", func(p *v1.Pod) { p.Labels["app"] = "train" }),
		pod("team", "y", 0, ""), pod("other", "x", 0, ""),
		pod("team", "basic", 0, "", without, native("basic"), func(p *v1.Pod) { p.Labels = map[string]string{"app": "train"} }),
	}
	var names []string
	for _, g := range Gangs(GangsIn{
		Pods: pods, Natives: []*schedulingv1beta1.PodGroup{nativeGroup("basic", true)}, PodGroups: []*coscheduling.PodGroup{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "basic"}}},
		Selector: labels.SelectorFromSet(labels.Set{"app": "train"}),
	}) {
		names = append(names, g.Namespace+"/"+g.Name)
	}
	if diff := cmp.Diff([]string{"team/x"}, names); diff != "" {
		t.Errorf("gangs (-want +got):\n%s", diff)
	}
}

func TestLevels(t *testing.T) {
	node := func(labels map[string]string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	list := []*v1.Node{
		node(map[string]string{rack: "r1", zone: "z0", "example.com/block": "b0", "failure-domain.beta.kubernetes.io/zone": "z0", "rack-unit": "7"}),
		node(map[string]string{rack: "r2", zone: "z0", "example.com/block": "b0"}),
		node(map[string]string{rack: "r3", zone: "z0", "example.com/block": "b1"}),
	}
	if diff := cmp.Diff([]string{zone, "example.com/block", rack}, Levels(list)); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
	if got := Levels(nil); len(got) > 0 {
		t.Errorf("levels of no nodes: %v", got)
	}
}
