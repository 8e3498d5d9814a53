package gangspec

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// nativeGroup returns a PodGroup of the gang policy; change makes it another one.
func nativeGroup(change func(*schedulingv1beta1.PodGroupSpec)) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{}
	pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 3}
	change(&pg.Spec)
	return pg
}

func basicPolicy(s *schedulingv1beta1.PodGroupSpec) {
	s.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
}

func topologies(keys ...string) *schedulingv1beta1.PodGroupSchedulingConstraints {
	c := &schedulingv1beta1.PodGroupSchedulingConstraints{}
	for _, key := range keys {
		c.Topology = append(c.Topology, schedulingv1beta1.TopologyConstraint{Key: key})
	}
	return c
}

func TestReadNative(t *testing.T) {
	type read struct {
		Min                         int
		Topology, Refused           string
		Never, Whole, Alone, Single bool
		Problems                    []string
	}
	all := &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	for sentence, c := range map[string]struct {
		change func(*schedulingv1beta1.PodGroupSpec)
		want   read
	}{
		"a gang":         {func(*schedulingv1beta1.PodGroupSpec) {}, read{Min: 3}},
		"no minimum":     {func(s *schedulingv1beta1.PodGroupSpec) { s.SchedulingPolicy.Gang.MinCount = -1 }, read{Problems: []string{`spec.schedulingPolicy.gang.minCount: "-1" is not a whole number from 1 to 100000; using nothing: the gang is held back until it has a minimum`}}},
		"no gang":        {basicPolicy, read{Min: 1, Alone: true, Single: true}},
		"an unknown one": {func(s *schedulingv1beta1.PodGroupSpec) { s.SchedulingPolicy.Gang = nil }, read{Refused: "its PodGroup's spec.schedulingPolicy is neither gang nor basic, and others are not known"}},
		"single": {func(s *schedulingv1beta1.PodGroupSpec) {
			s.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
		}, read{Min: 3}},
		"all":              {func(s *schedulingv1beta1.PodGroupSpec) { s.DisruptionMode = all }, read{Min: 3, Whole: true}},
		"no gang, but all": {func(s *schedulingv1beta1.PodGroupSpec) { basicPolicy(s); s.DisruptionMode = all }, read{Min: 1, Whole: true, Alone: true}},
		"another disruption mode": {
			func(s *schedulingv1beta1.PodGroupSpec) { s.DisruptionMode = &schedulingv1beta1.DisruptionMode{} },
			read{Min: 3, Whole: true, Problems: []string{`spec.disruptionMode: "" is not single or all; using all`}},
		},
		"a topology": {func(s *schedulingv1beta1.PodGroupSpec) { s.SchedulingConstraints = topologies("rack") }, read{Min: 3, Topology: "rack"}},
		"several topologies": {
			func(s *schedulingv1beta1.PodGroupSpec) { s.SchedulingConstraints = topologies("rack", "zone") },
			read{Min: 3, Topology: "rack", Problems: []string{`spec.schedulingConstraints.topology[1].key: "zone" is not understood: there can be one; using the first, rack`}},
		},
		"no gang, but in one domain": {
			func(s *schedulingv1beta1.PodGroupSpec) { basicPolicy(s); s.SchedulingConstraints = topologies("rack") },
			read{Min: 1, Topology: "rack", Single: true},
		},
		"it evicts nobody": {func(s *schedulingv1beta1.PodGroupSpec) { s.PreemptionPolicy = new(schedulingv1beta1.PreemptNever) }, read{Min: 3, Never: true}},
		"it may evict": {func(s *schedulingv1beta1.PodGroupSpec) {
			s.PreemptionPolicy = new(schedulingv1beta1.PreemptLowerPriority)
		}, read{Min: 3}},
		"a parent": {
			func(s *schedulingv1beta1.PodGroupSpec) { s.ParentCompositePodGroupName = new("above") },
			read{Min: 3, Problems: []string{`spec.parentCompositePodGroupName: "above" is not understood: a CompositePodGroup has no effect; using this PodGroup by itself`}},
		},
		"claims": {
			func(s *schedulingv1beta1.PodGroupSpec) {
				s.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpu"}}
			},
			read{Refused: `its PodGroup has spec.resourceClaims ("gpu"), and devices that are allocated to a PodGroup are not planned; let the pods alone name a ResourceClaim that they share`},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			object := ReadNative(nativeGroup(c.change))
			spec, problems := Parse(Key{"a", "train"}, object, nil, Defaults{WaitTime: time.Minute})
			got := read{Min: spec.Min, Topology: spec.RequiredTopology, Refused: spec.Refused, Never: spec.NeverPreempts, Whole: spec.Whole, Alone: object.MakesNoGang(), Single: object.EvictedOneByOne()}
			for _, p := range append(problems, object.Problems...) {
				if !p.OnObject {
					t.Errorf("%s is told of a pod", p.Key)
				}
				got.Problems = append(got.Problems, p.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGangOf: a pod is in the gang that it names, unless it does so by spec.schedulingGroup alone, and that PodGroup
// makes no gang.
func TestGangOf(t *testing.T) {
	train := Key{"a", "train"}
	basic := func(change func(*schedulingv1beta1.PodGroupSpec)) *PodGroupDescription {
		return ReadNative(nativeGroup(func(s *schedulingv1beta1.PodGroupSpec) { basicPolicy(s); change(s) }))
	}
	none := func(*schedulingv1beta1.PodGroupSpec) {}
	all := func(s *schedulingv1beta1.PodGroupSpec) {
		s.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	}
	for sentence, c := range map[string]struct {
		annotation string
		group      string
		native     *PodGroupDescription
		want       Key
		member     bool
	}{
		"it names none":              {native: basic(none)},
		"the gang policy":            {group: "train", native: ReadNative(nativeGroup(none)), want: train, member: true},
		"no PodGroup":                {group: "train", want: train, member: true},
		"the basic policy":           {group: "train", native: basic(none)},
		"though it is evicted whole": {group: "train", native: basic(all)},
		"in one domain":              {group: "train", native: basic(func(s *schedulingv1beta1.PodGroupSpec) { s.SchedulingConstraints = topologies("rack") }), want: train, member: true},
		"which is refused": {group: "train", native: basic(func(s *schedulingv1beta1.PodGroupSpec) {
			s.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpu"}}
		}), want: train, member: true},
		"an annotation that has the same name": {annotation: "train", native: basic(none), want: train, member: true},
		"an annotation beside it":              {annotation: "other", group: "train", native: basic(none), want: Key{"a", "other"}, member: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: podMeta{Namespace: "a", Annotations: map[string]string{v1alpha1.GangNameAnnotation: c.annotation}}}
			if c.group != "" {
				pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &c.group}
			}
			got, _, member := GangOf(pod, func(Key) *PodGroupDescription { return c.native })
			if got != c.want || member != c.member {
				t.Errorf("it is in %q: %t; want %q: %t", got, member, c.want, c.member)
			}
		})
	}
}

// TestTopologyOfTheSpec: annotations win over it, the pod's even if it is empty.
func TestTopologyOfTheSpec(t *testing.T) {
	for sentence, c := range map[string]struct {
		object, pod map[string]string
		want        string
	}{
		"no annotation":      {want: "rack"},
		"of the PodGroup":    {object: map[string]string{requiredKey: "zone"}, want: "zone"},
		"of a pod":           {pod: map[string]string{requiredKey: "zone"}, want: "zone"},
		"an empty one there": {pod: map[string]string{requiredKey: ""}},
	} {
		spec, _ := Parse(Key{"a", "train"}, &PodGroupDescription{Min: 1, Topology: "rack", Annotations: c.object}, &v1.Pod{ObjectMeta: podMeta{Annotations: c.pod}}, Defaults{})
		if spec.RequiredTopology != c.want {
			t.Errorf("%s: topology %q, want %q", sentence, spec.RequiredTopology, c.want)
		}
	}
}
