package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const gpu = v1.ResourceName("nvidia.com/gpu")

var team = hold.Holder{Profile: v1.DefaultSchedulerName, Group: "reservation"}

// keeper keeps pods out of what is held for others; pods of the team it grants what the team holds.
type keeper struct{ holds *ledger.Shared }

func (keeper) Name() string { return "Keeper" }

func (k keeper) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	return k.holds.Check(ledger.DemandOf(&framework.PodInfo{Pod: pod}), info, ledger.Granted(state, pod)...)
}

func (keeper) Grants(pod *v1.Pod) []hold.Holder {
	if pod.Annotations["team"] == "" {
		return nil
	}
	return []hold.Holder{team}
}

// newPlanner makes the planner of a profile with kube-scheduler's plugins and a keeper, with these nodes of 8 GPUs.
func newPlanner(t *testing.T, holds *ledger.Shared, nodes ...string) *Planner {
	t.Helper()
	plugins := extensionpoints.New()
	var all []*v1.Node
	for _, name := range nodes {
		all = append(all, st.MakeNode().Name(name).Capacity(map[v1.ResourceName]string{gpu: "8", v1.ResourcePods: "110"}).Obj())
	}
	made := plugins.Watch(func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return keeper{holds}, nil })
	s := idle.New(t, idle.Options{Plugins: frameworkruntime.Registry{keeper{}.Name(): made}, Snapshot: cache.NewSnapshot(nil, all)})
	return New(s.Framework, holds, plugins)
}

// gangOf returns an attempt of members of 4 GPUs, the first of which are of the team.
func gangOf(ofTeam, others int, change func(*st.PodWrapper)) *gangstate.Attempt {
	need := gangstate.Need{Key: gangspec.Key{Namespace: "ns", Name: "g"}, Min: ofTeam + others, Spec: gangspec.Spec{Min: ofTeam + others}}
	for i := range ofTeam + others {
		name := fmt.Sprint("m", i)
		pod := st.MakePod().Namespace("ns").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).Req(map[v1.ResourceName]string{gpu: "4"})
		if i < ofTeam {
			pod.Annotation("team", "a")
		}
		if change != nil {
			change(pod)
		}
		need.Pending = append(need.Pending, pod.Obj())
	}
	return &gangstate.Attempt{Group: "ns/g", Leader: "m0", Strict: true, Gangs: []gangstate.Need{need}}
}

// TestGrantsOfClasses: what is held for some members is no obstacle to these, but is to the others, though they are
// alike in all else.
func TestGrantsOfClasses(t *testing.T) {
	port := func(pod *st.PodWrapper) { pod.HostPort(80) }
	apart := func(pod *st.PodWrapper) {
		pod.Label("app", "g").PodAntiAffinityIn("app", v1.LabelHostname, []string{"no"}, st.PodAntiAffinityWithPreferredReq)
	}
	for sentence, c := range map[string]struct {
		ofTeam, others int
		change         func(*st.PodWrapper)
		evict          []hold.Holder
		floor          int64
		complete       bool
	}{
		"the team's members use what is held for them": {ofTeam: 4, complete: true},
		"nobody else's do":                                {others: 3},
		"there is room beside it for others":              {others: 2, complete: true},
		"both have their places":                          {ofTeam: 2, others: 2, complete: true},
		"the team's may go elsewhere, others may not":     {ofTeam: 1, others: 3},
		"also those that are placed one by one":           {ofTeam: 2, others: 2, change: apart, complete: true},
		"and of these no others":                          {ofTeam: 1, others: 3, change: apart},
		"who makes way makes it for all":                  {others: 4, evict: []hold.Holder{team}, complete: true},
		"a port that is held is free for the team":        {ofTeam: 1, others: 1, change: port, complete: true},
		"and not for others":                              {others: 2, change: port},
		"what is held for some counts as free for a gang": {ofTeam: 1, floor: 16, complete: true},
		"not for one of others":                           {others: 1, floor: 16},
	} {
		t.Run(sentence, func(t *testing.T) {
			holds := ledger.New()
			p := newPlanner(t, holds, "free", "held")
			holds.FollowPlan(team, nil, []hold.Hold{{For: "r", Node: "held", Request: resource.Vector{gpu: 8}, Ports: []hold.Port{{Protocol: "TCP", Number: 80}}}})
			a := gangOf(c.ofTeam, c.others, c.change)
			if c.floor > 0 {
				a.Gangs[0].Floor = resource.Vector{gpu: c.floor}
			}
			plan, err := p.Plan(t.Context(), a, c.evict)
			must.Succeed(t, err)
			if plan.Complete != c.complete {
				t.Errorf("complete is %t: %v", plan.Complete, plan.Why)
			}
			for _, pod := range a.Gangs[0].Pending {
				if plan.Nodes[pod.UID] == "held" && pod.Annotations["team"] == "" && c.evict == nil {
					t.Errorf("%s takes what is held for the team", pod.Name)
				}
			}
		})
	}
}

// TestShapesOfGrants: an attempt that failed does not stand for one that may use more.
func TestShapesOfGrants(t *testing.T) {
	holds := ledger.New()
	p := newPlanner(t, holds, "held")
	holds.FollowPlan(hold.Holder{Group: "others"}, nil, []hold.Hold{{For: "r", Node: "held", Request: resource.Vector{gpu: 8}}})
	var keys []uint64
	for _, a := range []*gangstate.Attempt{gangOf(2, 0, nil), gangOf(0, 2, nil), gangOf(0, 2, nil)} {
		plan, err := p.Plan(t.Context(), a, nil)
		if err != nil || plan.Complete || plan.Shape.Key == 0 {
			t.Fatalf("plan %+v, %v", plan, err)
		}
		if why := plan.Why[a.Gangs[0].Key]; !strings.Contains(why, ledger.ErrReasonHeld) {
			t.Errorf("it is told %q", why)
		}
		keys = append(keys, plan.Shape.Key)
	}
	if keys[0] == keys[1] || keys[1] != keys[2] {
		t.Errorf("shapes %v, want another one for the team's, and one for the others", keys)
	}
}
