package heldcapacity

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// fits returns the nodes that the plugin leaves to a pod.
func (s *stage) fits(t *testing.T, state fwk.CycleState, pod *v1.Pod) (nodes string) {
	t.Helper()
	if _, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSuccess() && !status.IsSkip() {
		t.Fatal(status.AsError())
	}
	list, err := s.snapshot.NodeInfos().List()
	must.Succeed(t, err)
	for _, info := range list {
		switch status := s.Filter(s.ctx, state, pod, info); {
		case status.IsSuccess():
			nodes += info.Node().Name[len(info.Node().Name)-1:]
		case status.Message() != ledger.ErrReasonHeld:
			t.Fatal(status)
		}
	}
	return nodes
}

// TestHeldDevices: on node 0 one of two devices is held, on node 1 nothing.
func TestHeldDevices(t *testing.T) {
	backed := func(count string) *v1.Pod {
		return st.MakePod().Namespace("ns").Name("backed").UID("backed").Req(map[v1.ResourceName]string{dra.Backed: count}).Obj()
	}
	for sentence, c := range map[string]struct {
		pod   *v1.Pod
		state func(*stage, fwk.CycleState)
		want  string
	}{
		"who needs one finds one":                  {dra.Pod("p", "one"), nil, "01"},
		"who needs both is kept out":               {dra.Pod("p", "two"), nil, "1"},
		"by an extended resource, too":             {backed("2"), nil, "1"},
		"who needs none is not looked at":          {dra.Pod("p"), nil, "01"},
		"what is granted is not held against it":   {dra.Pod("p", "two"), func(_ *stage, state fwk.CycleState) { ledger.Grant(state, others) }, "01"},
		"what is given back is free":               {dra.Pod("p", "two"), func(s *stage, _ fwk.CycleState) { s.holds.Release("member") }, "01"},
		"whoever takes account of devices is left": {dra.Pod("p", "two"), func(_ *stage, state fwk.CycleState) { whatif.MarkSimulated(state) }, "01"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, 2, dra.Class(), dra.Slice(nodeName(0), 2), dra.Slice(nodeName(1), 2), dra.Claim("one", 1), dra.Claim("two", 2), dra.Claim("member", 1))
			s.scheduler.Start()
			claims := []*resourceapi.ResourceClaim{dra.Held(dra.Claim("member", 1), nodeName(0), 0)}
			s.holds.FollowPlan(others, nil, []hold.Hold{{For: "member", Node: nodeName(0), Devices: claims}, {For: "plain", Node: nodeName(1)}})
			state := framework.NewCycleState()
			if c.state != nil {
				c.state(s, state)
			}
			if got := s.fits(t, state, c.pod); got != c.want {
				t.Errorf("left are nodes %q, want %q", got, c.want)
			}
		})
	}
}
