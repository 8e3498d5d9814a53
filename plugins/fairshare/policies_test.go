package fairshare

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

func named(names ...config.PolicyName) config.PolicyTier {
	var t config.PolicyTier
	for _, name := range names {
		t.Policies = append(t.Policies, config.Policy{Name: name})
	}
	return t
}

// TestPoliciesOf: what the book gets from tiers.
func TestPoliciesOf(t *testing.T) {
	const (
		priority, gangs, drf, proportion, capacity = config.PolicyPriority, config.PolicyGang, config.PolicyDRF, config.PolicyProportion, config.PolicyCapacity
	)
	only := func(name config.PolicyName, question config.PolicyQuestion) config.PolicyTier {
		return config.PolicyTier{Policies: []config.Policy{{Name: name, Answers: []config.PolicyQuestion{question}}}}
	}
	type list = []config.PolicyName
	for sentence, c := range map[string]struct {
		tiers []config.PolicyTier
		want  queueing.Policies
	}{
		"none":                           {},
		"the default":                    {defaultArgs().Tiers, queueing.Policies{QueueOrder: list{priority, proportion, capacity}, JobOrder: list{priority, gangs, drf, priority}, Overused: list{proportion, capacity}, Rules: share.Rules{Stated: true, Weighted: true}, Preempt: queueing.Lower, Reclaim: true}},
		"priority":                       {[]config.PolicyTier{named(config.PolicyPriority)}, queueing.Policies{QueueOrder: list{priority}, JobOrder: list{priority, priority}, Preempt: queueing.Lower}},
		"priority that only orders jobs": {[]config.PolicyTier{only(config.PolicyPriority, config.JobOrder)}, queueing.Policies{JobOrder: list{priority}}},
		"gang before priority":           {[]config.PolicyTier{named(config.PolicyGang), named(config.PolicyPriority)}, queueing.Policies{QueueOrder: list{priority}, JobOrder: list{gangs, priority, priority}, Preempt: queueing.Anything}},
		"priority before gang":           {[]config.PolicyTier{named(config.PolicyPriority), named(config.PolicyGang)}, queueing.Policies{QueueOrder: list{priority}, JobOrder: list{priority, gangs, priority}, Preempt: queueing.Anything}},
		"drf before priority":            {[]config.PolicyTier{named(config.PolicyDRF, config.PolicyPriority)}, queueing.Policies{QueueOrder: list{priority}, JobOrder: list{drf, priority, priority}, Preempt: queueing.Lower}},
		"proportion":                     {[]config.PolicyTier{named(config.PolicyProportion)}, queueing.Policies{QueueOrder: list{proportion}, Overused: list{proportion}, Rules: share.Rules{Weighted: true}, Reclaim: true}},
		"capacity":                       {[]config.PolicyTier{named(config.PolicyCapacity)}, queueing.Policies{QueueOrder: list{capacity}, Overused: list{capacity}, Rules: share.Rules{Stated: true}, Reclaim: true}},
		"capacity and proportion":        {[]config.PolicyTier{named(config.PolicyCapacity), named(config.PolicyProportion)}, queueing.Policies{QueueOrder: list{capacity, proportion}, Overused: list{capacity, proportion}, Rules: share.Rules{Stated: true, Weighted: true}, Reclaim: true}},
		"proportion that only orders":    {[]config.PolicyTier{only(config.PolicyProportion, config.QueueOrder)}, queueing.Policies{QueueOrder: list{proportion}, Rules: share.Rules{Weighted: true}}},
		"with drf anything makes way":    {[]config.PolicyTier{named(config.PolicyProportion, config.PolicyPriority), named(config.PolicyDRF)}, queueing.Policies{QueueOrder: list{proportion, priority}, JobOrder: list{priority, drf, priority}, Overused: list{proportion}, Rules: share.Rules{Weighted: true}, Preempt: queueing.Anything, Reclaim: true}},
	} {
		if diff := cmp.Diff(c.want, policiesOf(c.tiers)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}

// inGang puts a pod into a gang.
func inGang(p *v1.Pod, gang string) *v1.Pod {
	p.Annotations = map[string]string{v1alpha1.GangNameAnnotation: gang, v1alpha1.MinAvailableAnnotation: "1"}
	return p
}

// TestTiers: which pods may be evicted in each tier of each round, one by one and all together.
func TestTiers(t *testing.T) {
	const (
		priority, gangs, conformance, drf, proportion, capacity = config.PolicyPriority, config.PolicyGang, config.PolicyConformance, config.PolicyDRF, config.PolicyProportion, config.PolicyCapacity
	)
	with := func(p *v1.Pod, priority int32) *v1.Pod { p.Spec.Priority = ptr.To(priority); return p }
	system := pod("system", "a", 1, "all")
	system.Spec.PriorityClassName = "system-node-critical"
	// The cluster has 20 GPUs. a has 12 of them, for a gang of 5
	// and single pods; b has 8. They state that they deserve 16 and 4.
	pods := []*v1.Pod{
		with(pod("low", "a", 1, "all"), -1), with(pod("same", "a", 4, "all"), 0), with(system, -1), with(pod("high", "a", 1, "all"), 9),
		inGang(with(pod("g1", "a", 2, "all"), 5), "g"), inGang(with(pod("g2", "a", 2, "all"), 5), "g"), inGang(with(pod("g3", "a", 1, "all"), 5), "g"),
		with(pod("b1", "b", 4, "all"), -1), with(pod("b2", "b", 4, "all"), -1),
	}
	queues := []queueing.Queue{{Name: "a", Weight: 3, Deserved: gpus(16)}, {Name: "b", Deserved: gpus(4)}}
	for sentence, c := range map[string]struct {
		tiers []config.PolicyTier
		// want are the rounds, by tier: the permitted pods, and which of them are granted.
		want []string
	}{
		"priority":                                         {[]config.PolicyTier{named(priority)}, []string{"preempt: low system | low system"}},
		"all policies of a tier":                           {[]config.PolicyTier{named(priority, gangs, conformance)}, []string{"preempt gangs: low | low"}},
		"drf leaves the other no less":                     {[]config.PolicyTier{named(drf)}, []string{"preempt: g1 g2 g3 | g1 g3"}}, // of 5 at least 2 are left
		"drf and priority are nobody":                      {[]config.PolicyTier{named(drf, priority)}, []string{"preempt:  | "}},
		"tier by tier":                                     {[]config.PolicyTier{named(priority, conformance), named(drf, gangs)}, []string{"preempt: low | low", "preempt gangs: g1 g2 g3 | g1 g3"}},
		"capacity says who has too much":                   {[]config.PolicyTier{named(priority, capacity)}, []string{"preempt: low system | low system", "reclaim: b1 b2 | b1", "reclaim: b1 b2 | b1"}},
		"proportion alone knows nothing of what is stated": {[]config.PolicyTier{named(proportion)}, []string{"reclaim: b1 b2 | ", "reclaim: b1 b2 | "}}, // b deserves 6
		"with conformance alone nobody has too much":       {[]config.PolicyTier{named(conformance)}, []string{"preempt: low same high g1 g2 g3 | low same high g1 g2 g3"}},
		"a tier without proportion finds all, within the budget": {[]config.PolicyTier{named(gangs), named(proportion, capacity)},
			[]string{"preempt gangs: low same system high g1 g2 g3 | low same system high g1 g2 g3", "reclaim gangs: b1 b2 | b1", "reclaim: b1 b2 | b1", "reclaim gangs: b1 b2 | b1", "reclaim: b1 b2 | b1"}},
		"proportion that does not answer": {[]config.PolicyTier{{Policies: []config.Policy{{Name: proportion, Answers: []config.PolicyQuestion{config.Overused}}}}}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 20, 9, queues...)
			d.args.Tiers = c.tiers
			d.book.Configure(queueing.Limits{Window: 9}, policiesOf(c.tiers))
			preemptor := with(pod("p", "a", 2, ""), 0)
			for _, p := range append(slices.Clone(pods), preemptor) {
				d.seeAll(p)
			}
			var got []string
			for _, round := range d.rounds(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1}) {
				for _, tier := range round.Tiers {
					got = append(got, round.Name+judged(tier, round, pods))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("rounds (-want +got):\n%s", diff)
			}
		})
	}
}

// judged describes which pods a tier permits and grants.
func judged(tier extensionpoints.Tier, round extensionpoints.Round, pods []*v1.Pod) string {
	var permitted, granted []string
	var budget victim.Budget
	if tier.Budget != nil {
		budget = tier.Budget(nil)
	}
	for _, p := range pods {
		if !tier.Permits(p) {
			continue
		}
		permitted = append(permitted, p.Name)
		one := &victim.Gang{ID: p.Name, Queue: round.Queue(p), Min: 1}
		if budget == nil || budget.Take(one, []victim.Pod{{UID: p.UID, Request: victim.Vector(resource.OfPod(p))}}) {
			granted = append(granted, p.Name)
		}
	}
	text := ": "
	if tier.Gangs {
		text = " gangs: "
	}
	return text + strings.Join(permitted, " ") + " | " + strings.Join(granted, " ")
}

func TestDoubts(t *testing.T) {
	if got := warnings(defaultArgs().Tiers); len(got) > 0 {
		t.Errorf("doubts about the default tiers: %v", got)
	}
	want := []string{
		"the tier of [drf gang] answers Preemptable without conformance: it evicts pods that the system needs",
		"the tier of [gang] answers Reclaimable without conformance: it evicts pods that the system needs",
		"the tier of [proportion conformance] answers Reclaimable without gang: it breaks gangs",
		"the tier of [conformance] answers Preemptable without gang: it breaks gangs",
	}
	got := warnings([]config.PolicyTier{named(config.PolicyDRF, config.PolicyGang), named(config.PolicyProportion, config.PolicyConformance)})
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("doubts (-want +got):\n%s", diff)
	}
}
